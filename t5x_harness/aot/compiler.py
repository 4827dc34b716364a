"""One program through the TPU compiler: until its memory is assigned, or to the end.

The compiler writes what it knows into a folder as it goes. Memory, collectives and arithmetic are decided long before
it generates code, which is most of its work; so a process that wants nothing else can end there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import fcntl
import hashlib
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.aot import libtpu
from t5x_harness.slices.slice import Slice
from t5x_harness.system.decode import JsonValue

_SCHEDULED = "*after_optimizations_after_buffer_assignment.txt"
_POLL_SECONDS = 0.05
_QUIET_SECONDS = 0.2

# ``total memory required for HLO temporaries (32.48G) exceeds available HBM (15.48G)``; the first in libtpu 0.0.51.
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|CompileTimeHbmOom|Ran out of memory in memory space hbm")


class Until(enum.StrEnum):
    """How far a program is compiled: until its memory is assigned, or to the machine's code."""

    MEMORY = "memory"
    CODE = "code"


class CompilerVerdict(enum.StrEnum):
    """What the compiler says: done, more memory needed than there is, or neither."""

    COMPILED = "compiled"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class CompilerResult(JsonValue):
    """What the compiler said, and where it wrote what it knows.

    Attributes:
      verdict: how it ended.
      message: what it said where it did not compile; empty where it did.
      cpu_seconds: of the process, lowering included.
      host_bytes: the most memory of this machine that the process had.
      code_bytes: of the program; None where no code was generated.
      peak_bytes: the compiler's own figure for the most memory in use; None where no code was generated.
    """

    verdict: CompilerVerdict
    message: str = ""
    cpu_seconds: float = 0.0
    host_bytes: int = 0
    code_bytes: int | None = None
    peak_bytes: int | None = None


def fingerprint(text: str, slice_: Slice, devices: Sequence[int], environment: Mapping[str, str] = os.environ) -> str:
    """Returns a name for what the compiler would make of a program: equal names, equal results.

    Args:
      text: the program as StableHLO, which does not say for which TPUs it is.
      slice_: where it runs.
      devices: ids of the mesh's devices, in its order.
      environment: LIBTPU_INIT_ARGS among it change what is compiled.
    """
    parts = (
        text,
        slice_.generation.name,
        repr(slice_.topology),
        repr(tuple(devices)),
        environment.get("LIBTPU_INIT_ARGS", ""),
        *(f"{name} {libtpu.version(name)}" for name in ("libtpu", "jax", "jaxlib")),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def compile_program(lowered: Any, folder: Path, until: Until) -> CompilerResult:
    """Compiles a program; the compiler's own account of it is in a folder afterwards.

    Where it is compiled until its memory is assigned, the compiler is still at work when this returns: the process is
    of no further use.

    Args:
      lowered: JAX's ``Lowered``, for devices of a TPU.
      folder: a new folder.
      until: how far.
    """
    done: dict[str, Any] = {}

    def work() -> None:
        try:
            done["program"] = lowered.compile(
                compiler_options={"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True}
            )
        except Exception as error:  # of many types, by JAX and by the compiler's bindings
            done["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive() and not (until is Until.MEMORY and _is_written(folder)):
        thread.join(_POLL_SECONDS)
    taken = (time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    if (error := done.get("error")) is not None:
        print(error, file=sys.stderr)  # into the log of this process
        verdict = CompilerVerdict.OUT_OF_MEMORY if _OUT_OF_MEMORY.search(str(error)) else CompilerVerdict.FAILED
        return CompilerResult(verdict, str(error), *taken)
    if (program := done.get("program")) is not None:
        stats = program.memory_analysis()
        return CompilerResult(
            CompilerVerdict.COMPILED, "", *taken, stats.generated_code_size_in_bytes, stats.peak_memory_in_bytes
        )
    return CompilerResult(CompilerVerdict.COMPILED, "", *taken)


def _is_written(folder: Path) -> bool:
    """Returns whether all that is wanted is in the folder: the last of these files is there, and grows no more."""
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
      lock: the file that all of them lock; it is made if need be.
      waiting: called once if there is another.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
