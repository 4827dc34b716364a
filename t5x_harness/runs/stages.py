"""The stages of a run: which ones it has, and the order in which those of several runs are requested."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from t5x_harness.spec import RunSpec, Stage, StageResult


class StageFailed(Exception):
    """A stage of a run failed; the result has the reason."""

    def __init__(self, result: StageResult) -> None:
        super().__init__(f"{result.stage} failed")
        self.result = result


def stages_of(spec: RunSpec) -> tuple[Stage, ...]:
    """Returns the stages of a run, in order: only lint if its config shows no mode.

    The last stage that a run requests need not be a stage of its mode: an infer config has nothing to train.
    """
    if spec.mode is None:
        return (Stage.LINT,)
    stages = [stage for stage in Stage if not stage.executes or spec.mode in stage.modes]
    order = tuple(Stage)
    return tuple(
        stage
        for stage in stages
        if (stage is not Stage.AOT or spec.settings.aot is not None)
        and (stage is not Stage.RESUME or spec.resumes)
        and (spec.settings.until is None or order.index(stage) <= order.index(spec.settings.until))
    )


class _OfStage(Protocol):
    spec: RunSpec
    stage: Stage


T = TypeVar("T", bound=_OfStage)


def jobs_after_plans(items: Sequence[T], at_once: int) -> tuple[list[T], list[T]]:
    """Puts the stages before several runs' jobs first, followed by the stages that wait for the jobs.

    Args:
      items: the objects that represent stages of runs, in their order.
      at_once: how many jobs may exist at once; that many runs are grouped.

    Returns:
      All items in the new order, and the last item before each job that is waited for only after items of other runs.
    """
    runs: dict[RunSpec, list[T]] = {}
    for item in items:
        runs.setdefault(item.spec, []).append(item)
    arranged: list[T] = []
    last_before: list[T] = []
    for start in range(0, len(runs), at_once):
        group = [*runs.values()][start : start + at_once]
        before = [[each for each in run if not each.stage.executes] for run in group]
        arranged += [each for stages in before for each in stages]
        arranged += [each for run in group for each in run if each.stage.executes]
        if len(group) > 1:
            last_before += [found[-1] for found, run in zip(before, group, strict=True) if 0 < len(found) < len(run)]
    return arranged, last_before
