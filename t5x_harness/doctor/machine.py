"""What runs have to work with: forced CPU devices and the TPU compiler."""

from __future__ import annotations

import os

from packaging.version import Version

from t5x_harness.doctor.check import Check, Defect, Diagnosis
from t5x_harness.doctor.environment import Environment
from t5x_harness.spec import Severity

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
            old = Defect(
                Severity.ERROR,
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
