"""The outcome of a run and of each of its stages."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Self

from t5x_harness.spec.choices import Stage
from t5x_harness.spec.facts import BoundValue, Change, FactTable, Measure
from t5x_harness.spec.findings import Finding, Severity
from t5x_harness.spec.run import RunSpec
from t5x_harness.system.decode import JsonValue


class Outcome(enum.StrEnum):
    """How a stage ended. ``NOT_RUN`` is a stage that an earlier failure left out."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class StageResult(JsonValue):
    """What one stage found and did.

    Attributes:
      facts: what the stage established, in the order to show it: ``("mesh", "data 8 x model 1")``.
      not_checked: what it could not judge, in words; never silently empty.
      exercised: how many units of real work were done: statements read by lint, examples by resolve, arrays planned,
        programs compiled, steps trained, examples evaluated, lines inferred; 0 means nothing was proved.
      seconds: wall time.
      log_tail: last lines of the run's log, when it failed.
      silenced: findings that the user ignores, by code or by a comment; they do not fail the stage.
      measures: the numbers among the facts, for programs; in the order in which they were established.
      tables: the facts that are tables, likewise.
    """

    stage: Stage
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    not_checked: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    exercised: int = 0
    seconds: float = 0.0
    log_tail: str = ""
    silenced: tuple[Finding, ...] = ()
    measures: tuple[Measure, ...] = ()
    tables: tuple[FactTable, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that fail the stage."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @classmethod
    def interrupted(cls, stage: Stage) -> Self:
        """Returns the result of a stage that was running when its run was interrupted."""
        return cls(stage, Outcome.NOT_RUN, not_checked=(f"{stage}: interrupted",))


@dataclasses.dataclass(frozen=True)
class Checkpoint(JsonValue):
    """A checkpoint folder that a run wrote."""

    step: int
    path: str
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class AuxiliaryRun(JsonValue):
    """A run for one checkpoint of a train job.

    Attributes:
      name: the name of the jobs that it belongs to, which is that of their last gin file.
      step: the step of the checkpoint.
      mixture: the mixture that it evaluates, or is fine-tuned on.
      result: its outcome; for an evaluation, without what the train job's folder held before.
    """

    name: str
    step: int
    mixture: str
    result: RunResult


@dataclasses.dataclass(frozen=True)
class RunResult(JsonValue):
    """The outcome of a run, the same from every backend.

    Attributes:
      stages: in the order they ran.
      steps: last train step reached; 0 if nothing was trained.
      metrics: scalars by TensorBoard folder and tag, then step: ``metrics["train/loss"][4]``,
        ``metrics["inference_eval/my_task/eval/bleu"][4]``.
      checkpoints: what was written, by step.
      predictions: the JSON lines that evaluation and inference wrote, as dicts, in file order.
      operative_config: text of the config.gin that the run wrote; empty if it wrote none.
      log: path of the run's log file.
      model_dir: folder that the run wrote into.
      timings: seconds by stage.
      standins: what was generated because it is not available here, in words.
      bindings: every parameter and macro that the config binds, as its text says and before any change; in the order
        in which they were first bound. Empty if the config was not read.
      seconds: the time waited for all stages, imports included; ``timings`` is their own work.
      auxiliary: the runs of its auxiliary jobs; the metrics of those that evaluate are among ``metrics``, too.
    """

    spec: RunSpec
    stages: tuple[StageResult, ...]
    steps: int = 0
    metrics: Mapping[str, Mapping[int, float]] = dataclasses.field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    predictions: tuple[Mapping[str, Any], ...] = ()
    operative_config: str = ""
    log: str = ""
    model_dir: str = ""
    runtime: str = ""
    standins: tuple[str, ...] = ()
    bindings: tuple[BoundValue, ...] = ()
    seconds: float = 0.0
    auxiliary: tuple[AuxiliaryRun, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every stage passed, and those of the auxiliary jobs."""
        return all(s.outcome is Outcome.PASSED for s in self.stages) and all(r.result.passed for r in self.auxiliary)

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds by stage."""
        return {s.stage.value: s.seconds for s in self.stages}

    @property
    def changes(self) -> tuple[Change, ...]:
        """Everything the harness changed in the config, over all stages."""
        return tuple(c for s in self.stages for c in s.changes)

    def stage(self, stage: Stage | str) -> StageResult:
        """Returns the result of one stage.

        Raises:
          KeyError: the stage was not part of this run.
        """
        for result in self.stages:
            if result.stage == stage:
                return result
        raise KeyError(f"no stage {stage!s} in this run; it has {', '.join(s.stage for s in self.stages)}")
