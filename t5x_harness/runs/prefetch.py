"""Which runs of a session work in the background: the one whose stages are reported now, and those that come next."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

from t5x_harness.spec import RunSpec, Stage


@dataclasses.dataclass
class PendingRun:
    """A run of which no stage was asked for yet.

    Attributes:
      spec: the run.
      network: whether it may reach beyond this machine.
      stages: those that will be asked for.
    """

    spec: RunSpec
    network: bool
    stages: list[Stage]


class Prefetcher:
    """Tells which runs are to be begun next.

    Args:
      at_once: how many may work at the same time; below two, none begins before it is asked for.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._block: list[PendingRun] = []

    def next_runs(self, spec: RunSpec, find: Callable[[], list[PendingRun]]) -> list[PendingRun]:
        """Returns a run and those after it: as many as may work at once, and as many again.

        Args:
          spec: the run whose turn it is.
          find: finds it and the runs after it, where it is not among those that were found before.
        """
        if self._at_once < 2:
            return []
        if all(run.spec != spec for run in self._block):
            self._block = find()
        self._block = list(itertools.dropwhile(lambda run: run.spec != spec, self._block)) or self._block
        return self._block[: 2 * self._at_once]
