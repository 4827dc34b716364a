"""The TPU compiler, libtpu: whether it is installed, how it describes a slice, and how it compiles one program.

The compiler writes its decisions into a folder as it works. Memory, collectives and arithmetic are decided long
before it generates code, which is nine tenths of its work. So a process that needs nothing else can end there.
"""

import contextlib
import dataclasses
import enum
import fcntl
import hashlib
import importlib.util
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.slices.slice import Slice
from t5x_harness.system.decode import JsonValue
from t5x_harness.version import version_of

INSTALL = "python -m pip install 't5x-harness[aot]'"
"""The command that installs it."""

TRIED = {"libtpu": "0.0.52", "jax": "0.10.2"}
"""The newest versions with which this package was tried."""

# Without these variables, libtpu looks for a TPU's metadata server, and for another process that uses the TPU.
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
    """Returns whether the TPU compiler is installed in this environment; imports nothing."""
    return importlib.util.find_spec("libtpu") is not None


def why_not(*, in_process: bool) -> str:
    """Explains why nothing can be compiled for a TPU here; returns an empty text if something can.

    Args:
      in_process: whether runs share this process.
    """
    if not is_installed():
        return str(LibtpuMissing())
    if in_process:
        return "compiling for a TPU ends its process once enough is known, so it cannot run in-process: leave that out"
    return ""


def untried() -> list[str]:
    """Lists the packages of this environment that are newer than the versions with which this code was tried."""
    found = ((package, version_of(package), tried) for package, tried in TRIED.items())
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
    # A flag for CPUs in this variable would end the process, because the TPU compiler also reads it.
    return {**_ENVIRONMENT, "JAX_PLATFORMS": "cpu", "LIBTPU_INIT_ARGS": given.get("LIBTPU_INIT_ARGS")}


def describe_devices(slice_: Slice) -> list[Any]:
    """Returns the slice's devices as the compiler describes them, in the order of ``slice_.coordinates``.

    Raises:
      LibtpuMissing: the compiler is not installed.
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


_SCHEDULED = "*after_optimizations_after_buffer_assignment.txt"
_POLL_SECONDS = 0.05
_QUIET_SECONDS = 0.2

# ``total memory required for HLO temporaries (32.48G) exceeds available HBM (15.48G)``; the first in libtpu 0.0.51.
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|CompileTimeHbmOom|Ran out of memory in memory space hbm")
_REQUIRED = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)")
_USED = re.compile(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Until(enum.StrEnum):
    """How far a program is compiled: until its memory is assigned, or to the machine's code."""

    MEMORY = "memory"
    CODE = "code"


class CompilerVerdict(enum.StrEnum):
    """The outcome of a compilation: not begun, done, out of the device's memory, or failed for another reason."""

    LOWERED = "lowered"
    COMPILED = "compiled"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class CompilerResult(JsonValue):
    """The result of a compilation.

    Attributes:
      verdict: the way in which it ended.
      message: the compiler's message if it failed; empty otherwise.
      cpu_seconds: the CPU seconds of the process, including lowering.
      host_bytes: the most memory of this machine that the process had.
      code_bytes: the size of the program's code; None if no code was generated.
    """

    verdict: CompilerVerdict
    message: str = ""
    cpu_seconds: float = 0.0
    host_bytes: int = 0
    code_bytes: int | None = None

    @property
    def required_bytes(self) -> int | None:
        """The memory that the program needs according to the message; None if the message lacks it."""
        found = _REQUIRED.search(self.message) or _USED.search(self.message)
        return int(float(found[1]) * _UNITS[found[2]]) if found is not None else None


def fingerprint(text: str, slice_: Slice, devices: Sequence[int], environment: Mapping[str, str] = os.environ) -> str:
    """Returns a name for the compiler's result for a program: equal names mean equal results.

    Args:
      text: the program as StableHLO, which does not depend on the TPU.
      slice_: the slice where it runs.
      devices: the ids of the mesh's devices, in the mesh's order.
      environment: the environment, whose LIBTPU_INIT_ARGS change the result.
    """
    parts = (
        text,
        slice_.generation.name,
        repr(slice_.topology),
        repr(tuple(devices)),
        environment.get("LIBTPU_INIT_ARGS", ""),
        *(f"{name} {version_of(name)}" for name in ("libtpu", "jax", "jaxlib")),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def compile_program(lowered: Any, folder: Path, until: Until) -> CompilerResult:
    """Compiles a program, and has the compiler write its own account of the program into a folder.

    If it is compiled only until its memory is assigned, the compiler is still at work when this returns, and the
    process should end.

    Args:
      lowered: JAX's ``Lowered``, for devices of a TPU.
      folder: a new folder.
      until: how far to compile.
    """
    done: dict[str, Any] = {}

    def work() -> None:
        try:
            done["program"] = lowered.compile(
                compiler_options={"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True}
            )
        except Exception as error:  # JAX and the compiler's bindings raise many types
            done["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive() and not (until is Until.MEMORY and _is_written(folder)):
        thread.join(_POLL_SECONDS)
    verdict, message, code_bytes = CompilerVerdict.COMPILED, "", None
    if (error := done.get("error")) is not None:
        print(error, file=sys.stderr)  # goes into the log of this process
        message = str(error)
        verdict = CompilerVerdict.OUT_OF_MEMORY if _OUT_OF_MEMORY.search(message) else CompilerVerdict.FAILED
    elif (program := done.get("program")) is not None:
        code_bytes = program.memory_analysis().generated_code_size_in_bytes
    host_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return CompilerResult(verdict, message, time.process_time(), host_bytes, code_bytes)


def _is_written(folder: Path) -> bool:
    """Returns whether the last of the needed files exists and has stopped growing."""
    last = next(folder.glob(_SCHEDULED), None)
    if last is None:
        return False
    size = last.stat().st_size
    time.sleep(_QUIET_SECONDS)
    return size > 0 and last.stat().st_size == size


@contextlib.contextmanager
def one_at_a_time(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Yields while no other process of this user compiles for a TPU.

    Args:
      lock: the file that all of them lock; it is created if necessary.
      waiting: a function that is called once if another process is compiling.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
