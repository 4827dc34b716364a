"""What runs have to work with: forced CPU devices, the TPU compiler and a storage endpoint."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from packaging.version import Version

from t5x_harness.doctor.check import Looked, check, error, looked
from t5x_harness.doctor.environment import Environment

_FIRST_JAX = Version("0.5.0")  # has jax_num_cpu_devices
_REPLACED = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_NUM_CPU_DEVICES")


@check(
    "ENV07",
    "forced CPU devices",
    why=(
        "A slice is emulated by as many CPU devices as it has chips, which JAX makes from version 0.5.0 on. Variables "
        "that choose other devices are replaced in runs."
    ),
)
def forced_devices(environment: Environment) -> Looked:
    """Looks at JAX's version and at the variables that choose devices."""
    version = environment.version("jax")
    if version is None:
        return looked("not checked: jax is not installed")
    if Version(version) < _FIRST_JAX:
        bound = environment.recorded_requirement("jax")
        old = error(
            f"jax {version} cannot be given a number of CPU devices from Python; jax {_FIRST_JAX} can",
            f"python -m pip install 'jax{bound.specifier if bound else f'>={_FIRST_JAX}'}'",
        )
        return looked(f"jax {version}", old)
    chosen = [f"{n}={v}" for n in _REPLACED if (v := environment.variables.get(n)) not in (None, "cpu")]
    if "xla_force_host_platform_device_count" in environment.variables.get("XLA_FLAGS", ""):
        chosen.append("the device count in XLA_FLAGS")
    replaced = f"; runs replace {', '.join(chosen)}" if chosen else ""
    return looked(f"jax {version} on {os.cpu_count()} cores{replaced}")


@check(
    "ENV08",
    "TPU compiler",
    why="libtpu is the compiler for TPUs. Runs on this machine do not need it; an image for jobs does (IMG04).",
)
def tpu_compiler(environment: Environment) -> Looked:
    """Says whether libtpu is installed."""
    version = environment.version("libtpu")
    return looked(f"libtpu {version}" if version else "libtpu is not installed (not needed for runs here)")


_ENDPOINT = "TENSORSTORE_GCS_HTTP_URL"


@check(
    "ENV09",
    "storage endpoint",
    why=(
        "TENSORSTORE_GCS_HTTP_URL takes the address of the storage service alone. With a bucket in its path, as seen "
        "in forums, tensorstore, which reads and writes checkpoints, sends every request to a wrong address and "
        "authentication fails."
    ),
)
def storage_endpoint(environment: Environment) -> Looked:
    """Looks at the variable that tensorstore, which reads and writes checkpoints, takes its address from."""
    url = environment.variables.get(_ENDPOINT)
    if not url:
        return looked("tensorstore's own")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        problem = f"{_ENDPOINT} is {url!r}, which is not an http address"
    elif parts.path.strip("/"):
        problem = f"{_ENDPOINT} is {url!r}, with a path: tensorstore would ask for {url.rstrip('/')}/storage/v1/…"
    else:
        return looked(f"{url}, from {_ENDPOINT}")
    return looked(url, error(problem, f"unset {_ENDPOINT}"))
