"""Lowers and compiles one program at one depth in its own process, reads the result, and keeps it."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t5x_harness.aot.buffers import BufferAssignment, read_assignment
from t5x_harness.aot.costs import DeviceCosts, costs_of
from t5x_harness.aot.depth import moments_of
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict, Until
from t5x_harness.aot.memory import DeviceMemory, memory_of
from t5x_harness.aot.program_text import HloProgram, read_program
from t5x_harness.aot.refusals import NotCompiled, crashed, refused, too_little_memory
from t5x_harness.aot.request import LoweredProgram, ProgramSpec
from t5x_harness.runtime.compile_cache import harness_cache_folder
from t5x_harness.spec import Finding, RunSpec, Stage
from t5x_harness.system.decode import JsonValue
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import OnProgress, RunProcess

# Bytes of the process before it compiles, and for each operation: a little more than benchmarks/aot.py prints.
_BEGINNING = 1.0 * 2**30
_FOR_EACH_OPERATION = {Until.MEMORY: 60_000.0, Until.CODE: 300_000.0}

# Files of both versions of control groups.
_GROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def needed_bytes(operations: int, until: Until) -> int:
    """Estimates the memory of this machine that a compilation takes, in bytes.

    Args:
      operations: the number of StableHLO operations.
      until: how far the program is compiled.
    """
    return int(_BEGINNING + _FOR_EACH_OPERATION[until] * operations)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Returns the free memory in bytes, of the machine or of the process's control group, whichever has less.

    Args:
      root: the root of the file system.

    Returns:
      The bytes; None if the system does not report them.
    """
    found = []
    with contextlib.suppress(OSError):
        meminfo = (root / "proc/meminfo").read_text(encoding="utf-8")
        found += [int(size) * 1024 for size in re.findall(r"^MemAvailable:\s*(\d+)", meminfo, re.MULTILINE)]
    for limit, used in _GROUP_FILES:
        with contextlib.suppress(OSError, ValueError):  # the other version of control groups, or no limit
            most, taken = ((root / "sys/fs/cgroup" / name).read_text(encoding="utf-8") for name in (limit, used))
            found.append(int(most) - int(taken))
    return min(found, default=None)


_FORMAT = 8
"""The version of kept results; results of other versions are not read."""


@dataclasses.dataclass(frozen=True)
class CompiledProgram(JsonValue):
    """The compiler's result for a program.

    Attributes:
      lowered: the facts that were known before.
      result: the compiler's result.
      memory: the memory of one device; None if the program did not compile or was only lowered.
      costs: the costs of one run on one device; None in the same cases.
      live: the bytes of temporary values by moment; see :mod:`t5x_harness.aot.depth`.
      at: the memory at moments other than the peak, by name, if they were requested.
      is_kept: whether an earlier run compiled it.
    """

    lowered: LoweredProgram
    result: CompilerResult
    memory: DeviceMemory | None = None
    costs: DeviceCosts | None = None
    live: Mapping[str, int] = dataclasses.field(default_factory=dict)
    at: Mapping[str, DeviceMemory] = dataclasses.field(default_factory=dict)
    is_kept: bool = False


@dataclasses.dataclass(frozen=True)
class Compiler:
    """Compiles programs of one run, one after the other.

    Attributes:
      start: a function that starts a process for one program of a run, in its own folder.
      folder: the folder for all programs.
      timeout: the seconds that a compilation may take; None for no limit.
      on_progress: a function that is called with ``{"stage", "note"}`` while a program is compiled.
      waits: the seconds that each compilation has waited for others on this machine.
      readings: the compiler's files about programs with few layers, by fingerprint.
    """

    start: Callable[[Path, RunSpec], RunProcess]
    folder: Path
    timeout: float | None = None
    on_progress: OnProgress | None = None
    waits: list[float] = dataclasses.field(default_factory=list)
    readings: dict[str, tuple[HloProgram, BufferAssignment]] = dataclasses.field(default_factory=dict)

    def memory_at(self, compiled: CompiledProgram, moment: str) -> DeviceMemory | None:
        """Returns a compiled program's memory at one of its moments; None if an earlier run did not keep it."""
        if (known := compiled.at.get(moment)) is not None:
            return known
        fingerprint = compiled.lowered.fingerprint
        if (reading := self.readings.pop(fingerprint, None)) is None:
            return None
        found = memory_of(*reading, moments_of(*reading)[moment])
        if (kept := _kept(fingerprint, Until.MEMORY)) is not None:
            _write(kept, dataclasses.replace(compiled, at={**compiled.at, moment: found}))
        return found

    def compile(
        self, program: ProgramSpec, spec: RunSpec, until: Until | None, depth: str = "", again: bool = False
    ) -> CompiledProgram:
        """Compiles a program, unless the same program was compiled before.

        Args:
          program: the program.
          spec: the run that it belongs to.
          until: how far to compile; None to only lower it.
          depth: the number of layers in words, for progress notes; empty for all layers.
          again: whether to compile it even if its result is kept.

        Raises:
          NotCompiled: it cannot be lowered, the compiler refuses it or crashes, or this machine has too little memory.
          WorkerError: the process cannot be started, or exceeds its time limit.
        """
        folder = self.folder / program.name
        shutil.rmtree(folder, ignore_errors=True)
        about = f"{program.name}{depth}"
        self._tell(f"lowering {about}")
        run = self.start(folder, spec)
        try:
            answer = run.call("lower", timeout=self.timeout, program=program.to_json())
            if "finding" in answer:
                raise NotCompiled(Finding.from_json(answer["finding"]))
            lowered = LoweredProgram.from_json(answer)
            if until is None:
                return CompiledProgram(lowered, CompilerResult(CompilerVerdict.LOWERED))
            kept = _kept(lowered.fingerprint, until)
            if not again and (known := _read(kept, lowered)) is not None:
                return known
            self._await_turn(run, about)
            if not again and (known := _read(kept, lowered)) is not None:
                return known  # another process has compiled the same program in the meantime
            needed, free = needed_bytes(lowered.operations, until), available_bytes()
            if free is not None and needed > free:
                raise too_little_memory(needed, free, until)
            self._tell(f"compiling {about}")
            answer = run.call("compile", timeout=self.timeout, folder=str(folder / "compiler"), until=until.value)
            result = CompilerResult.from_json(answer)
            if result.verdict is CompilerVerdict.FAILED:
                raise refused(result.message, run.log)
            compiled = self._account(program, lowered, result, folder / "compiler", is_whole=not depth)
            if kept is not None:
                _write(kept, compiled)
            return compiled
        except RunDied as error:
            raise crashed(error, run.log) from error
        finally:
            run.close()
            shutil.rmtree(folder / "compiler", ignore_errors=True)

    def _account(
        self, program: ProgramSpec, lowered: LoweredProgram, result: CompilerResult, folder: Path, is_whole: bool
    ) -> CompiledProgram:
        if result.verdict is not CompilerVerdict.COMPILED:
            return CompiledProgram(lowered, result)
        text = read_program(_one(folder, "after_optimizations.txt"))
        files = (_one(folder, f"after_optimizations-{name}.txt") for name in ("buffer-assignment", "live-range"))
        assignment = read_assignment(*files)
        compiled = CompiledProgram(
            lowered, result, memory_of(text, assignment), costs_of(text, lowered.mesh, program.longest_loop)
        )
        if is_whole:
            return compiled
        self.readings[lowered.fingerprint] = text, assignment
        live = assignment.live_bytes()
        moments = moments_of(text, assignment)
        return dataclasses.replace(compiled, live={name: int(live[moment]) for name, moment in moments.items()})

    def _await_turn(self, run: RunProcess, about: str) -> None:
        """Waits until no other process of this user compiles."""
        root = harness_cache_folder(os.environ)
        lock = root / "aot.lock" if root else Path(tempfile.gettempdir(), f"t5x-harness-{os.getuid()}-aot.lock")
        began = time.monotonic()
        note = f"{about}: waiting for another compilation"
        run.call("await_turn", on_progress=lambda event: self._tell(note), lock=str(lock))
        self.waits.append(time.monotonic() - began)

    def _tell(self, note: str) -> None:
        if self.on_progress is not None:
            self.on_progress({"stage": Stage.AOT.value, "note": note})


def _one(folder: Path, ending: str) -> Path:
    """Returns the file that the compiler wrote about the step, which is the largest program."""
    return max(folder.glob(f"*.{ending}"), key=lambda file: file.stat().st_size)


def _kept(fingerprint: str, until: Until) -> Path | None:
    """Returns the file for the result of a program; None if nothing is kept."""
    root = harness_cache_folder(os.environ)
    return None if root is None else root / "aot" / f"{fingerprint}-{until}.json"


def _read(kept: Path | None, lowered: LoweredProgram) -> CompiledProgram | None:
    if kept is None:
        return None
    try:
        stored: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if stored.pop("format", None) != _FORMAT:
        return None
    return dataclasses.replace(CompiledProgram.from_json(stored), lowered=lowered, is_kept=True)


def _write(kept: Path, compiled: CompiledProgram) -> None:
    """Writes a result atomically, because two processes may compile the same program."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
    unfinished.write_text(json.dumps({"format": _FORMAT, **compiled.to_json()}), encoding="utf-8")
    unfinished.replace(kept)
