"""Runs the TPU compiler on one program: until its memory is assigned, or to the end.

The compiler writes what it decides into a folder as it works. Memory, collectives and arithmetic are decided long
before it generates code, which is nine tenths of its work. So a process that needs nothing else can end there.
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
    """How a compilation ends: done, out of the device's memory, or failed for another reason."""

    COMPILED = "compiled"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class CompilerResult(JsonValue):
    """The result of a compilation.

    Attributes:
      verdict: how it ended.
      message: the compiler's message if it failed; empty otherwise.
      cpu_seconds: CPU seconds of the process, lowering included.
      host_bytes: the most memory of this machine that the process had.
      code_bytes: size of the program's code; None if no code was generated.
      peak_bytes: the compiler's own figure for the most memory in use; None if no code was generated.
    """

    verdict: CompilerVerdict
    message: str = ""
    cpu_seconds: float = 0.0
    host_bytes: int = 0
    code_bytes: int | None = None
    peak_bytes: int | None = None


def fingerprint(text: str, slice_: Slice, devices: Sequence[int], environment: Mapping[str, str] = os.environ) -> str:
    """Names what the compiler would make of a program: equal names mean equal results.

    Args:
      text: the program as StableHLO, which does not depend on the TPU.
      slice_: where it runs.
      devices: ids of the mesh's devices in its order.
      environment: its LIBTPU_INIT_ARGS change what is compiled.
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
    """Compiles a program, and has the compiler write its own account of it into a folder.

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
    """Returns whether the last of the files that are read exists and has stopped growing."""
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
      waiting: called once if another process compiles.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
