"""Forced CPU devices: as many as the slice has, set before JAX creates its backend."""

import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.slices.slice import Slice
from t5x_harness.version import version_of

_FORCED = re.compile(r"\s*--xla_force_host_platform_device_count=\S*")
# Forced devices share the machine's few cores. If the cores are busy, XLA's limit of 40 s for the last device to arrive
# at a collective aborts healthy runs.
_PATIENCE = (
    ("--xla_cpu_collective_call_warn_stuck_timeout_seconds", 120),
    ("--xla_cpu_collective_call_terminate_timeout_seconds", 1200),
)
_FIRST_WITH_PATIENCE = (0, 10)


class DevicesTooLate(RuntimeError):
    """JAX's backend already exists with another number of devices; the message says what to do."""


def device_environment(
    slice: Slice, environment: Mapping[str, str] | None = None, *, processes: int = 1
) -> dict[str, str]:
    """Returns the variables that give a new process as many CPU devices as a slice has.

    Args:
      slice: the slice.
      environment: the variables whose XLA_FLAGS are kept; this process's own by default.
      processes: the number of processes that share the devices evenly.

    Returns:
      Variables to set in addition to the process's environment.
    """
    flags = (os.environ if environment is None else environment).get("XLA_FLAGS", "")
    return _variables(slice.num_devices // processes, flags)


def force_cpu_devices(number: int) -> None:
    """Gives this process a number of CPU devices, before or after JAX is imported.

    Child processes inherit it. Does nothing if JAX already has exactly these devices.

    Raises:
      DevicesTooLate: JAX has created its backend with other devices.
    """
    if "jax" in sys.modules:
        import jax

        try:
            jax.config.update("jax_num_cpu_devices", number)
        except RuntimeError as error:
            devices = jax.devices()
            if len(devices) != number or devices[0].platform != "cpu":
                raise DevicesTooLate(_too_late(number, len(devices), devices[0].platform)) from error
        else:
            jax.config.update("jax_platforms", "cpu")
    os.environ.update(_variables(number, os.environ.get("XLA_FLAGS", "")))


def use_cpu_only() -> None:
    """Keeps JAX away from TPUs in this process and its child processes, which need no slice.

    Otherwise JAX would start the TPU's runtime if libtpu is installed. That prints warnings on a machine without TPUs,
    and takes the chips away from other programs on a machine with TPUs.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:
        import jax

        jax.config.update("jax_platforms", "cpu")


def _variables(number: int, flags: str) -> dict[str, str]:
    kept = _FORCED.sub("", flags).strip()
    added = [f"--xla_force_host_platform_device_count={number}"]
    # A flag that XLA does not know aborts the process, so it is set only if it is known to exist.
    version = re.match(r"(\d+)\.(\d+)", version_of("jaxlib") or "")
    if version is not None and (int(version[1]), int(version[2])) >= _FIRST_WITH_PATIENCE:
        added += [f"{flag}={seconds}" for flag, seconds in _PATIENCE if flag not in kept]
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(number),
        "XLA_FLAGS": " ".join([kept, *added] if kept else added),
    }


def _too_late(wanted: int, existing: int, platform: str) -> str:
    suspects = _own_modules_using_jax()
    named = f" Modules loaded here that use JAX: {', '.join(suspects)}." if suspects else ""
    return (
        f"{wanted} CPU devices are needed, but JAX has already created its backend with {existing} {platform}"
        f" device{'' if existing == 1 else 's'}, and it does so once per process. The first jax.devices(),"
        " jax.random.PRNGKey(…) or jax.numpy array creates it, often in a module's top level or as a default argument."
        f"{named} Move that call into a function, or start a fresh process with the devices set:"
        " t5x-harness exec --slice NAME -- python …"
    )


def _own_modules_using_jax() -> list[str]:
    """Returns the loaded modules outside the installed packages that refer to JAX."""
    installed = tuple({sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib")})
    here = str(Path(__file__).parents[1])
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or file.startswith((*installed, here)):
            continue
        held = [
            v for v in list(vars(module).values()) if getattr(v, "__name__", "") in ("jax", "jax.numpy", "jax.random")
        ]
        if held:
            found.append(name)
    return sorted(found)
