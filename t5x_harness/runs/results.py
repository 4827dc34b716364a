"""The results of a session's runs, its own and those that other processes hand over."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.spec import RunResult, RunSpec

if TYPE_CHECKING:
    from t5x_harness.report import Report
    from t5x_harness.runs.pool import RunPool


class RunResults:
    """Results by their runs, in the order in which these ended.

    Args:
      pool: what makes the runs of this process.

    Attributes:
      by_run: the results.
      kept: the folders with logs and outputs of runs that failed.
    """

    def __init__(self, pool: RunPool) -> None:
        self.by_run: dict[RunSpec, RunResult] = {}
        self.kept: list[Path] = []
        self._pool = pool
        self._origins: dict[RunSpec, str] = {}  # by the run as it was asked for, or as its result has it
        self._refusals: list[str] = []
        self._import_seconds = 0.0

    def asked_for(self, spec: RunSpec, origin: str) -> None:
        """Notes what asks for a run, such as a test; the first one counts."""
        self._origins.setdefault(spec, origin)

    def add(self, result: RunResult, spec: RunSpec) -> None:
        """Keeps the last result of what several tests run alike, or the first one that failed.

        Args:
          result: of a run.
          spec: the run as it was asked for.
        """
        self._origins.setdefault(result.spec, self._origins[spec])
        before = self.by_run.get(result.spec)
        if before is None or before.passed:
            self.by_run[result.spec] = result

    @property
    def refusals(self) -> Sequence[str]:
        """Why runs did not begin in the worker that is kept for this shell, though there is one."""
        return list(dict.fromkeys([*self._refusals, *self._pool.refusals]))

    @property
    def kept_lines(self) -> list[str]:
        """Where logs and outputs of runs that failed are, in words."""
        if len(self.kept) == 1:
            return [f"log and output of the failed run are kept in {self.kept[0]}"]
        folders = dict.fromkeys(folder.parent for folder in self.kept)
        return [f"logs and outputs of the failed runs are kept in {folder}" for folder in folders]

    @property
    def import_seconds(self) -> float:
        """How long runs have waited for imports; of several processes, in the one that has waited longest."""
        return max(self._import_seconds, self._pool.import_seconds)

    def report(self, seconds: float) -> Report:
        """Returns the report of all runs.

        Args:
          seconds: that the session has taken.
        """
        from t5x_harness.report import Report

        return Report(
            tuple(self.by_run.values()),
            tuple(self._origins[spec] for spec in self.by_run),
            seconds=seconds,
            import_seconds=0.0 if self.refusals else self.import_seconds,  # a refusal says that there was a wait
        )

    def to_json(self) -> dict[str, Any]:
        """Returns what another process needs to report these runs: no metrics, predictions, configs or bindings."""
        results = [
            dataclasses.replace(result, metrics={}, predictions=(), operative_config="", bindings=())
            for result in self.by_run.values()
        ]
        return {
            "results": [result.to_json() for result in results],
            "origins": [self._origins[spec] for spec in self.by_run],
            "import_seconds": self.import_seconds,
            "kept": [str(path) for path in self.kept],
            "refusals": self.refusals,
        }

    def add_json(self, value: Mapping[str, Any]) -> None:
        """Adds what :meth:`to_json` returned in another process."""
        for result, origin in zip(map(RunResult.from_json, value["results"]), value["origins"], strict=True):
            self.asked_for(result.spec, origin)
            self.add(result, result.spec)
        self._import_seconds = max(self._import_seconds, value["import_seconds"])
        self.kept += map(Path, value["kept"])
        self._refusals += value["refusals"]
