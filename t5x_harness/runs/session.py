"""The runs of a session that requests them stage by stage, such as pytest's, and their results."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.runs.pool import RunContext, RunPool
from t5x_harness.spec import NOTHING_IMPORTED, Imports, Outcome, RunResult, RunSpec, Stage, StageResult

if TYPE_CHECKING:
    from t5x_harness.report.report import Report
    from t5x_harness.runs.run import Run
    from t5x_harness.workers.run import OnProgress

_OTHERS = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions other than pytest's outcomes, with which plugins end work in progress; these pass unchanged."""


@dataclasses.dataclass
class PendingRun:
    """A run of which no stage has been requested yet.

    Attributes:
      spec: the run.
      network: whether the run may reach beyond this machine.
      stages: the stages that will be requested.
    """

    spec: RunSpec
    network: bool
    stages: list[Stage]


class RunResults:
    """Results by run, in the order in which the runs ended.

    Args:
      pool: the pool that makes the runs of this process.

    Attributes:
      by_run: the results by run.
      kept: the folders with logs and outputs of runs that failed.
    """

    def __init__(self, pool: RunPool) -> None:
        self.by_run: dict[RunSpec, RunResult] = {}
        self.kept: list[Path] = []
        self._pool = pool
        self._origins: dict[RunSpec, str] = {}  # by the run as it was requested, or as its result names it
        self._refusals: list[str] = []
        self._imports = NOTHING_IMPORTED

    def asked_for(self, spec: RunSpec, origin: str) -> None:
        """Notes the origin of a run, such as a test; the first one counts."""
        self._origins.setdefault(spec, origin)

    def add(self, result: RunResult, spec: RunSpec) -> None:
        """Keeps the last result, or the first failed one, of a run that several tests share.

        Args:
          result: the result of a run.
          spec: the run as it was requested.
        """
        self._origins.setdefault(result.spec, self._origins[spec])
        before = self.by_run.get(result.spec)
        if before is None or before.passed:
            self.by_run[result.spec] = result

    @property
    def refusals(self) -> Sequence[str]:
        """The reasons that runs did not begin in the worker that is kept for this shell, if there is one."""
        return list(dict.fromkeys([*self._refusals, *self._pool.refusals]))

    @property
    def kept_lines(self) -> list[str]:
        """The places of the logs and outputs of failed runs, in words."""
        if len(self.kept) == 1:
            return [f"log and output of the failed run are kept in {self.kept[0]}"]
        folders = dict.fromkeys(folder.parent for folder in self.kept)
        return [f"logs and outputs of the failed runs are kept in {folder}" for folder in folders]

    @property
    def imports(self) -> Imports:
        """What is known of imports, in the process whose runs have waited longest for them."""
        return _longest(self._imports, self._pool.imports)

    def report(self, seconds: float) -> Report:
        """Returns the report of all runs.

        Args:
          seconds: the seconds that the session has taken.
        """
        from t5x_harness.report.report import Report
        from t5x_harness.system.processes import own_seconds

        return Report(
            tuple(self.by_run.values()),
            tuple(self._origins[spec] for spec in self.by_run),
            seconds=seconds,
            start_seconds=max(0.0, own_seconds() - seconds),
            imports=NOTHING_IMPORTED if self.refusals else self.imports,  # a refusal already mentions the wait
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the data with which another process reports these runs: no metrics, predictions or configs."""
        results = [
            dataclasses.replace(result, metrics={}, predictions=(), operative_config="", bindings=())
            for result in self.by_run.values()
        ]
        return {
            "results": [result.to_json() for result in results],
            "origins": [self._origins[spec] for spec in self.by_run],
            "imports": self.imports.to_json(),
            "kept": [str(path) for path in self.kept],
            "refusals": self.refusals,
        }

    def add_json(self, value: Mapping[str, Any]) -> None:
        """Adds the results that :meth:`to_json` returned in another process."""
        for result, origin in zip(map(RunResult.from_json, value["results"]), value["origins"], strict=True):
            self.asked_for(result.spec, origin)
            self.add(result, result.spec)
        self._imports = _longest(self._imports, Imports.from_json(value["imports"]))
        self.kept += map(Path, value["kept"])
        self._refusals += value["refusals"]


def _longest(*imports: Imports) -> Imports:
    return max(imports, key=lambda each: (each.seconds, each.stay))


class RunRegistry:
    """Keeps one run, with its own folder, for each distinct spec, from its first stage to its end.

    Args:
      pool: the pool that makes the runs.
      make_folder: a function that makes the parent of their folders when it is first needed.
      on_progress: a function that receives the progress of the run that is waited for.

    Attributes:
      pool: the argument.
      results: the results of the runs that have ended.
    """

    def __init__(self, pool: RunPool, make_folder: Callable[[], Path], on_progress: OnProgress) -> None:
        self.pool = pool
        self.results = RunResults(pool)
        self._make_folder = make_folder
        self._folder: Path | None = None
        self._on_progress = on_progress
        self._runs: dict[RunSpec, Run] = {}
        self._pending: list[PendingRun] = []
        self._submitted_early: set[RunSpec] = set()
        self._is_interrupted = False

    @property
    def folder(self) -> Path:
        """The parent of the runs' folders."""
        if self._folder is None:
            self._folder = self._make_folder()
        return self._folder

    def stage(
        self, spec: RunSpec, stage: Stage, context: RunContext, *, origin: str, pending: Callable[[], list[PendingRun]]
    ) -> StageResult:
        """Returns the result of one stage of a run, which is run once however often it is requested.

        The next runs begin to work ahead if they may and this one is not a job.

        Args:
          spec: the spec of the run.
          stage: one of its stages.
          context: the context in which it is made, if this call is the first for it.
          origin: the requester of the run; the first one counts.
          pending: a function that finds it and the runs after it.
        """
        if context.promote is None:
            for ahead in self.next_runs(spec, pending):
                if ahead.spec not in self._runs:
                    made = self._make(ahead.spec, RunContext(network=ahead.network, buckets=context.buckets))
                    self.pool.begin(made, ahead.stages)
        elif stage.executes:
            self._submitted_early.discard(spec)  # it ends with its last stage, like every other run
        run = self._begun(spec, context, origin)
        try:
            return run.stage(stage)
        except _OTHERS:
            raise
        except BaseException as error:
            run.cut_off(str(error))
            return run.stage(stage)

    def next_runs(self, spec: RunSpec, find: Callable[[], list[PendingRun]]) -> list[PendingRun]:
        """Returns a run and the runs after it: twice as many as may work at once.

        Args:
          spec: the run whose turn it is.
          find: a function that finds it and the runs after it, if it is not among those found before.
        """
        if self.pool.parallel < 2:
            return []
        if all(run.spec != spec for run in self._pending):
            self._pending = find()
        self._pending = list(itertools.dropwhile(lambda run: run.spec != spec, self._pending)) or self._pending
        return self._pending[: 2 * self.pool.parallel]

    def run(self, spec: RunSpec, context: RunContext, *, origin: str, may_fail: bool = False) -> RunResult:
        """Runs all stages of a run and ends its process.

        Args:
          spec: the spec of the run.
          context: see :meth:`stage`.
          origin: the requester of the run.
          may_fail: whether the caller judges a failure, which then is not a failure of the session.

        Raises:
          BaseException: it interrupted the run, such as a time limit of pytest's own; the run is ended, and has failed.
        """
        run = self._begun(spec, context, origin)
        try:
            run.finish()
        except _OTHERS:
            raise
        except BaseException as error:
            run.cut_off(str(error))
            self.end(spec)
            raise
        return self.end(spec, may_fail=may_fail)

    def submit_early(self, spec: RunSpec) -> None:
        """Submits the job of a promoted run, which is waited for later, when others have been submitted."""
        if spec in self._runs:
            self._submitted_early.add(spec)
            self._runs[spec].submit_early()

    def failed_before(self, spec: RunSpec, result: StageResult) -> StageResult | None:
        """Returns the failed stage that kept the stage of ``result`` from running."""
        if result.outcome is not Outcome.NOT_RUN:
            return None
        return next((s for s in self._runs[spec].result().stages if s.outcome is Outcome.FAILED), None)

    def leave(self, spec: RunSpec) -> None:
        """Ends a run that was begun, because none of its stages comes next, unless its job is waited for later."""
        if spec in self._runs and spec not in self._submitted_early:
            self.end(spec)

    def end(self, spec: RunSpec, *, may_fail: bool = False) -> RunResult:
        """Ends a run's process and keeps its result."""
        run = self._runs.pop(spec)
        with run:
            try:
                result = run.result()
            except BaseException:
                self.results.add(run.known(), spec)  # the table shows it anyway
                raise
        if result.passed or not may_fail:
            self.results.add(result, spec)
        if not result.passed and not may_fail and any(path.is_file() for path in run.workspace.rglob("*")):
            self.results.kept.append(run.workspace)
        return result

    def finish(self) -> None:
        """Ends the runs whose further stages were expected, but never requested.

        Runs that worked ahead, and of which no stage was requested, are not reported.
        """
        for spec, run in list(self._runs.items()):
            if run.is_asked:
                self.end(spec)
            else:
                self._runs.pop(spec).close()

    def interrupt(self) -> None:
        """Kills all runs, and keeps their results so far. May be called again."""
        if self._is_interrupted:
            return
        self._is_interrupted = True
        for spec, run in self._runs.items():
            known = run.known(asked=True)
            if known.stages:
                self.results.add(known, spec)
            if any(stage.outcome is Outcome.FAILED for stage in known.stages):
                self.results.kept.append(run.workspace)
        self.pool.kill()  # afterwards, as it makes stages fail

    def close(self) -> None:
        """Ends all processes; removes the folders of the runs that did not fail."""
        for spec in list(self._runs):
            self._runs.pop(spec).close()
        self.pool.close(patient=not self._is_interrupted)
        if self._folder is None or not self._folder.is_dir():  # another program may have cleaned up /tmp
            return
        for workspace in self._folder.iterdir():
            if workspace not in self.results.kept:
                shutil.rmtree(workspace, ignore_errors=True)
        if not self.results.kept:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begun(self, spec: RunSpec, context: RunContext, origin: str) -> Run:
        self.results.asked_for(spec, origin)
        return self._runs[spec] if spec in self._runs else self._make(spec, context)

    def _make(self, spec: RunSpec, context: RunContext) -> Run:
        workspace = Path(tempfile.mkdtemp(prefix=f"{spec.name}-", dir=self.folder))
        run = self._runs[spec] = self.pool.run(spec, workspace, context, self._on_progress)
        return run
