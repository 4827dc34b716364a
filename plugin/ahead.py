"""Which runs of a session work at once: those of the collected stages that come next."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from t5x_harness.runs.ahead import Ahead, OnProgress, RunAhead, runs_at_once
from t5x_harness.spec import RunSpec, Stage

from . import marks
from .gin_items import StageItem
from .options import Options
from .promotion import PROMOTION

if TYPE_CHECKING:
    from t5x_harness.runs.pipeline import Pipeline

__all__ = ["Lookahead", "Upcoming"]


@dataclasses.dataclass
class Upcoming:
    """A run that items stand for which have not run yet.

    Attributes:
      spec: the run.
      network: whether it may reach beyond this machine.
      stages: the selected ones.
    """

    spec: RunSpec
    network: bool
    stages: list[Stage]


class Lookahead:
    """Begins the next runs; nothing in a session that makes one run after the other.

    That is one of pytest-xdist's workers, which fill the cores already, one with runs in its own process, for a
    debugger, one with promoted tests, whose jobs are sent early in their own way, and one whose user wants it so.

    Args:
      config: pytest's.
      options: the harness's.
    """

    def __init__(self, config: pytest.Config, options: Options) -> None:
        alone = options.in_process or hasattr(config, "workerinput") or config.stash[PROMOTION].active
        ahead = options.ahead
        if ahead is None and options.full_size:
            ahead = 0  # two such runs may need more memory than there is
        self._at_once = 1 if alone else runs_at_once(ahead)
        self._ahead: Ahead | None = None
        self._block: list[Upcoming] = []

    def runs(self, item: StageItem) -> list[Upcoming]:
        """The run of an item and those of the items after it: as many as may work at once, and as many again."""
        if self._at_once < 2:
            return []
        if all(run.spec != item.spec for run in self._block):
            self._block = _upcoming(item)
        self._block = list(itertools.dropwhile(lambda run: run.spec != item.spec, self._block)) or self._block
        return self._block[: 2 * self._at_once]

    def begin(
        self, run: Upcoming, make: Callable[[OnProgress], Pipeline], on_progress: Callable[[RunSpec], OnProgress]
    ) -> RunAhead:
        """Lets a run work as soon as the others leave a core to it; see :meth:`t5x_harness.runs.ahead.Ahead.begin`."""
        if self._ahead is None:
            self._ahead = Ahead(self._at_once)
        return self._ahead.begin(run.spec, run.stages, make, on_progress)

    def join(self, *, patient: bool) -> None:
        """Waits for the threads of runs that have been closed; see :meth:`t5x_harness.runs.ahead.Ahead.join`."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead.join(patient=patient)


def _upcoming(item: StageItem) -> list[Upcoming]:
    """The runs that begin with or after an item, up to the next item that is no stage.

    A test may change the environment and the folder of this process, which a run takes over when it starts, so none
    starts while one runs. Nor is a run begun of which a stage was run already, will be skipped, or comes after a test.
    """
    items = item.session.items
    of_all = Counter(each.spec for each in items if isinstance(each, StageItem))
    found: dict[RunSpec, Upcoming] = {}
    for each in items[items.index(item) :]:
        if not isinstance(each, StageItem):
            break
        run = found.setdefault(each.spec, Upcoming(each.spec, marks.network_allowed(each), []))
        if not any(map(each.get_closest_marker, ("skip", "skipif"))):
            run.stages.append(each.stage)
    return [run for run in found.values() if len(run.stages) == of_all[run.spec]]
