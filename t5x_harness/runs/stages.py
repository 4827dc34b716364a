"""The stages of a run: which ones its mode has, what each needs, their results, and why one is not run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from t5x_harness.findings.work import BEFORE_EXECUTION, not_run
from t5x_harness.spec import AotMode, Mode, Outcome, Reason, RunSpec, Stage, StageResult

if TYPE_CHECKING:
    from t5x_harness.gin.program import GinProgram

_EXECUTING: Mapping[Mode, tuple[Stage, ...]] = {
    Mode.TRAIN: (Stage.TRAIN, Stage.EVAL, Stage.INFER),
    Mode.EVAL: (Stage.EVAL,),
    Mode.INFER: (Stage.INFER,),
}


class StageFailed(Exception):
    """A stage of a run failed; the result says why."""

    def __init__(self, result: StageResult) -> None:
        super().__init__(f"{result.stage} failed")
        self.result = result


def stages_of(mode: Mode | None, until: Stage | None = None, aot: AotMode | None = None) -> tuple[Stage, ...]:
    """Returns the stages of a run of this mode, in order; only lint for a config whose mode cannot be seen.

    Args:
      mode: of the run.
      until: the last stage, which need not be one of the mode's: an infer config has nothing to train; None for all.
      aot: how its programs are compiled for the slice; None for not at all, and so without that stage.
    """
    stages = (*BEFORE_EXECUTION, *_EXECUTING[mode]) if mode is not None else (Stage.LINT,)
    if aot is None:
        stages = tuple(stage for stage in stages if stage is not Stage.AOT)
    order = tuple(Stage)
    return tuple(stage for stage in stages if until is None or order.index(stage) <= order.index(until))


def with_mode(spec: RunSpec, read: Callable[[], GinProgram]) -> RunSpec:
    """Returns a run with its mode, which the config shows if the run does not say.

    Args:
      spec: the run.
      read: reads its config.
    """
    return spec if spec.mode is not None else dataclasses.replace(spec, mode=read().mode)


def standins_of(results: Iterable[StageResult]) -> tuple[str, ...]:
    """Returns what stand-ins took the place of in these stages, in words."""
    return tuple(f"{c.binding}: {c.before}" for r in results for c in r.changes if c.why is Reason.STANDIN)


class Stages:
    """The results of a run's stages: each is run once, after those before it, and only if none of them failed.

    Args:
      spec: the run, with its mode.
      stages: those that it has, in order.
      run: runs one of them.
    """

    def __init__(self, spec: RunSpec, stages: tuple[Stage, ...], run: Callable[[Stage], StageResult]) -> None:
        self.all = stages
        self._mode = spec.mode
        self._run = run
        self._results: dict[Stage, StageResult] = {}

    def result(self, stage: Stage) -> StageResult:
        """Returns the result of a stage, run now if it was not yet.

        Raises:
          ValueError: the run has no such stage.
        """
        if stage not in self.all:
            raise ValueError(
                f"a run in mode {self._mode or 'unknown'} has no stage {stage}; it has {', '.join(self.all)}"
            )
        if stage not in self._results:
            failed = next((s for s in self.before(stage) if self.result(s).outcome is Outcome.FAILED), None)
            self._results[stage] = self._run(stage) if failed is None else left_out(stage, failed)
        return self._results[stage]

    def before(self, stage: Stage) -> tuple[Stage, ...]:
        """Returns the stages before one."""
        return self.all[: self.all.index(stage)]

    @property
    def known(self) -> tuple[StageResult, ...]:
        """The results that there are, in the order of the stages."""
        return tuple(self._results[stage] for stage in self.all if stage in self._results)


def left_out(stage: Stage, failed: Stage) -> StageResult:
    """Makes the result of a stage that another one's failure leaves out."""
    return not_run(StageResult(stage, Outcome.NOT_RUN), f"{failed} failed")
