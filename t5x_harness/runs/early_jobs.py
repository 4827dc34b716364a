"""The order in which stages of promoted runs are asked for, so that their jobs are there at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from t5x_harness.spec import RunSpec, Stage


class _OfStage(Protocol):
    spec: RunSpec
    stage: Stage


T = TypeVar("T", bound=_OfStage)


def jobs_after_plans(items: Sequence[T], at_once: int) -> tuple[list[T], list[T]]:
    """Puts the stages before several runs' jobs first, and then those that wait for the jobs.

    Args:
      items: what stands for the stages of runs, in their order.
      at_once: how many jobs may be there at once; as many runs are taken together.

    Returns:
      All of them in the new order; and the last one before each job that is waited for only after those of other runs.
    """
    runs: dict[RunSpec, list[T]] = {}
    for item in items:
        runs.setdefault(item.spec, []).append(item)
    arranged: list[T] = []
    last_before: list[T] = []
    for start in range(0, len(runs), at_once):
        group = [*runs.values()][start : start + at_once]
        arranged += [each for run in group for each in run if not each.stage.executes]
        arranged += [each for run in group for each in run if each.stage.executes]
        for run in group:
            before = [each for each in run if not each.stage.executes]
            if len(group) > 1 and before and len(before) < len(run):
                last_before.append(before[-1])
    return arranged, last_before
