"""The TPU compiler, libtpu: whether it is installed, what it needs, and how it describes the devices of a slice."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any

from t5x_harness.slices.slice import Slice

INSTALL = "python -m pip install 't5x-harness[aot]'"
"""The command that installs it."""

TRIED = {"libtpu": "0.0.52", "jax": "0.10.2"}
"""The newest versions that this room was tried with."""

# Without these, libtpu looks for a TPU's metadata server, and for another process that uses the TPU.
_ENVIRONMENT = {
    "TPU_ACCELERATOR_TYPE": "v3-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class LibtpuMissing(RuntimeError):
    """There is no TPU compiler in this environment; the message says how to install it."""

    def __init__(self) -> None:
        super().__init__(f"the TPU compiler is not installed: {INSTALL}")


def is_installed() -> bool:
    """Returns whether the TPU compiler is in this environment; imports nothing."""
    return importlib.util.find_spec("libtpu") is not None


def why_not(*, in_process: bool) -> str:
    """Explains why nothing can be compiled for a TPU here; empty if it can.

    Args:
      in_process: whether runs share this process.
    """
    if not is_installed():
        return str(LibtpuMissing())
    if in_process:
        return "compiling for a TPU ends its process once enough is known, so it cannot run in-process: leave that out"
    return ""


def version(package: str = "libtpu") -> str | None:
    """Returns the version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def untried() -> list[str]:
    """Lists in words what is newer in this environment than the versions that this room was tried with."""
    found = ((package, version(package), tried) for package, tried in TRIED.items())
    return [
        f"{package} {there}: newer than {tried}, with which the numbers of docs/aot.md were measured"
        for package, there, tried in found
        if there is not None and _numbers(there) > _numbers(tried)
    ]


def environment(given: Mapping[str, str]) -> dict[str, str | None]:
    """Returns variables for a process that compiles for a TPU.

    Args:
      given: the user's variables; LIBTPU_INIT_ARGS is kept.

    Returns:
      The variables to set; None for a variable to remove.
    """
    # A flag for CPUs in this variable would end the process, as the TPU compiler reads it, too.
    return {**_ENVIRONMENT, "JAX_PLATFORMS": "cpu", "LIBTPU_INIT_ARGS": given.get("LIBTPU_INIT_ARGS")}


def describe_devices(slice_: Slice) -> list[Any]:
    """Returns the slice's devices as the compiler describes them, in the order of ``slice_.coordinates``.

    Raises:
      LibtpuMissing: it is not installed.
    """
    if not is_installed():
        raise LibtpuMissing
    import jax
    from jax.experimental import topologies

    jax.devices()  # the CPU backend reads XLA_FLAGS, which libtpu must not see
    os.environ.pop("XLA_FLAGS", None)
    generation = slice_.generation
    options: dict[str, Any] = {"chips_per_host_bounds": list(slice_.host_chips)}
    if generation.name == "v4":
        options["chip_config_name"] = "megacore"
    shape = "x".join(str(n) for n in slice_.topology[: generation.dimensions])
    topology = topologies.get_topology_desc(platform="tpu", topology_name=f"{generation.name}:{shape}", **options)
    placed = {(*device.coords, device.core_on_chip): device for device in topology.devices}
    return [placed[d.x, d.y, d.z, d.core] for d in slice_.coordinates]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
