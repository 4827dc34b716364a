"""A run of known sizes, a compiler that calculates memory instead of compiling, and a process that pretends to."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t5x_harness.aot import compiling
from t5x_harness.aot.compiling import CompiledProgram
from t5x_harness.aot.costs import DeviceCosts
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict, Until
from t5x_harness.aot.memory import DeviceMemory
from t5x_harness.aot.request import AotRun, Knob, LoweredProgram, ProgramSpec
from t5x_harness.spec import AotMode, Location, RunSettings, RunSpec
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import OnProgress, RunProcess

GIB = 2**30
SPEC = RunSpec(("run.gin",), slice="v3-8", settings=RunSettings(aot=AotMode.MEMORY))


def program(name: str = "train", batch: int = 64) -> ProgramSpec:
    """Returns a program whose batch size is the config's."""
    return ProgramSpec(name, "", "", {"decoder_target_tokens": (batch, 100)}, {}, "BATCH_SIZE")


def planned(batch: int = 64, state: int = GIB, steps: int | None = 1000, **knobs: Knob) -> AotRun:
    """Returns a run on v3-8 whose state, of ``state`` bytes, is cut along the model axis."""
    return AotRun(
        (program(batch=batch), program("predict", batch)),
        {},
        False,
        {"train": state, "predict": state // 4},
        steps,
        {
            "batch_size": Knob("BATCH_SIZE", str(batch), Location("run.gin", 1)),
            "num_microbatches": Knob("trainer.Trainer.num_microbatches", "None", None),
            "num_partitions": Knob("partitioning.PjitPartitioner.num_partitions", "1", None),
            "model_parallel_submesh": Knob("partitioning.PjitPartitioner.model_parallel_submesh", "None", None),
            **knobs,
        },
        mesh={"data": 8, "model": 1},
        cut_bytes={"train": {"model": state}, "predict": {"model": state // 4}},
    )


@dataclasses.dataclass
class PretendCompiler:
    """A compiler that takes each program's needs from a function of the program and its bindings.

    Attributes:
      needs: a function that returns the bytes of a device for a program and bindings.
      limit: the bytes beyond which the compiler itself reports too little memory.
      calls: the program's name, slice and bindings of each compilation.
    """

    needs: Callable[[ProgramSpec, dict[str, str]], int]
    limit: int = 1 << 62
    calls: list[tuple[str, str, tuple[str, ...]]] = dataclasses.field(default_factory=list)
    on_progress: Callable[[Any], None] | None = None
    waits: tuple[float, ...] = ()

    def compile(self, program: ProgramSpec, spec: RunSpec, _until: Until | None, _depth: str = "") -> CompiledProgram:
        self.calls.append((program.name, spec.slice, spec.bindings))
        needed = self.needs(program, dict(binding.split(" = ") for binding in spec.bindings))
        lowered = LoweredProgram("", 1, {"data": 8, "model": 1}, 0)
        if needed > self.limit:
            said = f"total memory required ({needed / GIB:.2f}G) exceeds available HBM (15.48G)"
            return CompiledProgram(lowered, CompilerResult(CompilerVerdict.OUT_OF_MEMORY, said))
        memory = DeviceMemory(needed, needed, {}, ())
        flops = int(123e12 / 2 * 0.36)  # 0.36 s on a device of v3: 0.1 h for 1,000 steps
        costs = DeviceCosts(flops, flops, 0, (), (), ())
        return CompiledProgram(lowered, CompilerResult(CompilerVerdict.COMPILED), memory, costs)


def by_examples(each: int) -> Callable[[ProgramSpec, dict[str, str]], int]:
    """Returns a function for needs that grow with the examples of a microbatch."""

    def needs(program: ProgramSpec, bound: dict[str, str]) -> int:
        parts = int(bound.get("trainer.Trainer.num_microbatches", 1)) if program.name == "train" else 1
        return each * program.shapes["decoder_target_tokens"][0] // parts

    return needs


LOWERED = LoweredProgram("f", 10, {"data": 8}, 4)


class FakeRun(RunProcess):
    """A process that lowers, waits for another, and compiles to a result or dies; the other may keep its result."""

    pid, log = 0, Path("train/run.log")

    def __init__(self, result: CompilerResult | None = None, kept: Path | None = None) -> None:
        self.called: list[str] = []
        self._result = result
        self._kept = kept

    def call(
        self, method: str, /, *, timeout: float | None = None, on_progress: OnProgress | None = None, **_: Any
    ) -> Any:
        self.called.append(method)
        if method == "lower":
            return LOWERED.to_json()
        if method == "await_turn":
            assert timeout is None  # time spent on another process's work is not this run's
            on_progress({"stage": "aot", "waiting": True})
            if self._kept is not None:
                self._kept.parent.mkdir(parents=True)
                compiled = CompiledProgram(LOWERED, CompilerResult(CompilerVerdict.OUT_OF_MEMORY, "of another", 1.0))
                self._kept.write_text(json.dumps({"format": compiling._FORMAT, **compiled.to_json()}), encoding="utf-8")
            return None
        if self._result is None:
            raise RunDied("The run was killed by SIGKILL")
        return self._result.to_json()

    def close(self) -> None:
        """Does nothing."""
