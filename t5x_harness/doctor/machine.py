"""What runs have to work with: forced CPU devices, the TPU compiler and a storage endpoint."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from packaging.version import Version

from t5x_harness.doctor.check import Check, Diagnosis, error
from t5x_harness.doctor.environment import Environment

_FIRST_JAX = Version("0.5.0")  # has jax_num_cpu_devices
_REPLACED = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_NUM_CPU_DEVICES")


class ForcedDevices(Check):
    """Whether JAX can be given as many CPU devices as a slice has."""

    code = "ENV07"
    title = "forced CPU devices"
    why = (
        "A slice is emulated by as many CPU devices as it has chips, which JAX makes from version 0.5.0 on. Variables "
        "that choose other devices are replaced in runs."
    )

    def run(self, environment: Environment) -> Diagnosis:
        """Looks at JAX's version and at the variables that choose devices."""
        version = environment.version("jax")
        if version is None:
            return self.diagnosis("not checked: jax is not installed")
        if Version(version) < _FIRST_JAX:
            bound = environment.recorded_requirement("jax")
            old = error(
                f"jax {version} cannot be given a number of CPU devices from Python; jax {_FIRST_JAX} can",
                f"python -m pip install 'jax{bound.specifier if bound else f'>={_FIRST_JAX}'}'",
            )
            return self.diagnosis(f"jax {version}", old)
        chosen = [f"{n}={v}" for n in _REPLACED if (v := environment.variables.get(n)) not in (None, "cpu")]
        if "xla_force_host_platform_device_count" in environment.variables.get("XLA_FLAGS", ""):
            chosen.append("the device count in XLA_FLAGS")
        replaced = f"; runs replace {', '.join(chosen)}" if chosen else ""
        return self.diagnosis(f"jax {version} on {os.cpu_count()} cores{replaced}")


class TpuCompiler(Check):
    """Whether libtpu, the TPU compiler, is installed; runs on this machine do not need it."""

    code = "ENV08"
    title = "TPU compiler"
    why = "libtpu is the compiler for TPUs. Runs on this machine do not need it; an image for jobs does (IMG04)."

    def run(self, environment: Environment) -> Diagnosis:
        """Says whether it is there."""
        version = environment.version("libtpu")
        return self.diagnosis(f"libtpu {version}" if version else "libtpu is not installed (not needed for runs here)")


_ENDPOINT = "TENSORSTORE_GCS_HTTP_URL"


class StorageEndpoint(Check):
    """Whether tensorstore, which reads and writes checkpoints, talks to Google's storage as it should.

    The variable takes the service's address alone. With a bucket in its path, as seen in forums, every request goes to
    a wrong address and authentication fails.
    """

    code = "ENV09"
    title = "storage endpoint"
    why = (
        "TENSORSTORE_GCS_HTTP_URL takes the address of the storage service alone. With a bucket in its path, as seen "
        "in forums, tensorstore, which reads and writes checkpoints, sends every request to a wrong address and "
        "authentication fails."
    )

    def run(self, environment: Environment) -> Diagnosis:
        """Looks at the variable."""
        url = environment.variables.get(_ENDPOINT)
        if not url:
            return self.diagnosis("tensorstore's own")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            problem = f"{_ENDPOINT} is {url!r}, which is not an http address"
        elif parts.path.strip("/"):
            problem = f"{_ENDPOINT} is {url!r}, with a path: tensorstore would ask for {url.rstrip('/')}/storage/v1/…"
        else:
            return self.diagnosis(f"{url}, from {_ENDPOINT}")
        return self.diagnosis(url, error(problem, f"unset {_ENDPOINT}"))
