"""The runs of a session that asks for them stage by stage, and for some of them more than once."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from t5x_harness.findings.work import BEFORE_EXECUTION
from t5x_harness.runs.background import BackgroundRun
from t5x_harness.runs.cut_off import CutOffRun
from t5x_harness.runs.pipeline import OnProgress, Pipeline
from t5x_harness.runs.pool import RunContext, RunPool
from t5x_harness.runs.prefetch import PendingRun, Prefetcher
from t5x_harness.runs.results import RunResults
from t5x_harness.spec import Outcome, RunResult, RunSpec, Stage, StageResult

_OTHERS = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit)
"""What may be raised beside outcomes of pytest, by which plugins end what is at work; these stay as they are."""


class SharedRuns:
    """One pipeline, with a folder of its own, for each distinct run, from its first stage to its end.

    Args:
      pool: makes the pipelines.
      make_folder: makes the folder for theirs, when it is first needed.
      on_progress: takes the progress of whatever run is waited for.

    Attributes:
      pool: as above.
      results: of the runs that have ended.
    """

    def __init__(self, pool: RunPool, make_folder: Callable[[], Path], on_progress: OnProgress) -> None:
        self.pool = pool
        self.results = RunResults(pool)
        self._make_folder = make_folder
        self._on_progress = on_progress
        self._prefetcher = Prefetcher(pool.at_once)
        self._pipelines: dict[RunSpec, Pipeline | BackgroundRun | CutOffRun] = {}
        self._workspaces: dict[RunSpec, Path] = {}
        self._submitted_early: set[RunSpec] = set()
        self._is_interrupted = False

    @functools.cached_property
    def folder(self) -> Path:
        """The folder with a folder for each run."""
        return self._make_folder()

    def stage(
        self,
        spec: RunSpec,
        stage: Stage,
        context: RunContext,
        *,
        origin: str,
        pending: Callable[[], list[PendingRun]],
    ) -> StageResult:
        """Returns the result of one stage of a run, which is run once however often it is asked for.

        Runs that follow begin to work in the background, if they may, and this one is not a job.

        Args:
          spec: what to run.
          stage: one of its stages.
          context: where it is made, if this call is the first for it.
          origin: what asks for the run; the first one counts.
          pending: finds it and the runs after it.
        """
        if context.promote is None:
            self._prefetch(spec, pending, context.buckets)
        elif stage not in BEFORE_EXECUTION:
            self._submitted_early.discard(spec)  # it ends with its last stage, as every other one
        run = self._begun(spec, context, origin)
        try:
            return run.stage(stage)
        except _OTHERS:
            raise
        except BaseException as error:
            return self._cut_off(spec, stage, error).stage(stage)

    def _cut_off(self, spec: RunSpec, stage: Stage, error: BaseException) -> CutOffRun:
        """Ends a run because of what interrupted the wait for a stage."""
        run = self._pipelines[spec]
        assert not isinstance(run, CutOffRun)
        cut = self._pipelines[spec] = CutOffRun(run, stage, str(error))
        return cut

    def run(self, spec: RunSpec, context: RunContext, *, origin: str, may_fail: bool = False) -> RunResult:
        """Runs all stages of a run and ends its process.

        Args:
          spec: what to run.
          context: see :meth:`stage`.
          origin: what asks for it.
          may_fail: whether the caller judges a failure; then it is not a failure of the session.

        Raises:
          BaseException: what interrupted it, such as a time limit of pytest's own; the run is ended, and has failed.
        """
        pipeline = self._begun(spec, context, origin)
        for stage in pipeline.stages:
            try:
                pipeline.stage(stage)
            except _OTHERS:
                raise
            except BaseException as error:
                self._cut_off(spec, stage, error)
                self.end(spec)
                raise
        return self.end(spec, may_fail=may_fail)

    def submit_early(self, spec: RunSpec) -> None:
        """Submits the job of a promoted run that is waited for later, when others were submitted."""
        run = self._pipelines.get(spec)
        if isinstance(run, Pipeline):
            self._submitted_early.add(spec)
            run.submit_early()

    def failed_before(self, spec: RunSpec, result: StageResult) -> StageResult | None:
        """Returns the failed stage because of which ``result`` was not run."""
        if result.outcome is not Outcome.NOT_RUN:
            return None
        stages = self._pipelines[spec].result().stages
        return next((s for s in stages if s.outcome is Outcome.FAILED), None)

    def leave(self, spec: RunSpec) -> None:
        """Ends a run that was begun, as none of its stages comes next; not one whose job is waited for later."""
        if spec in self._pipelines and spec not in self._submitted_early:
            self.end(spec)

    def end(self, spec: RunSpec, *, may_fail: bool = False) -> RunResult:
        """Ends a run's process and keeps its result."""
        pipeline = self._pipelines.pop(spec)
        workspace = self._workspaces.pop(spec)
        try:
            result = pipeline.result()
        except BaseException:
            self.results.add(pipeline.known(), spec)  # the table shows it all the same
            raise
        finally:
            pipeline.close()
        if result.passed or not may_fail:
            self.results.add(result, spec)
        if not result.passed and not may_fail and any(path.is_file() for path in workspace.rglob("*")):
            self.results.kept.append(workspace)
        return result

    def finish(self) -> None:
        """Ends the runs of which further stages were expected, but never came.

        Of those that worked in the background, and of which no stage came at all, nothing is reported.
        """
        for spec, run in list(self._pipelines.items()):
            if isinstance(run, BackgroundRun) and not run.is_asked:
                self._pipelines.pop(spec).close()
            else:
                self.end(spec)

    def interrupt(self) -> None:
        """Has all runs killed, and keeps what is known of them. May be called again."""
        if self._is_interrupted:
            return
        self._is_interrupted = True
        for spec, run in self._pipelines.items():
            known = run.known(asked=True) if isinstance(run, BackgroundRun) else run.known()
            if known.stages:
                self.results.add(known, spec)
            if any(stage.outcome is Outcome.FAILED for stage in known.stages):
                self.results.kept.append(self._workspaces[spec])
        self.pool.kill()  # afterwards, as it makes stages fail

    def close(self) -> None:
        """Ends all processes; removes the folders of the runs that did not fail."""
        for spec in list(self._pipelines):
            self._pipelines.pop(spec).close()
        self.pool.close(patient=not self._is_interrupted)
        if "folder" not in vars(self) or not self.folder.is_dir():  # another program may have cleared up /tmp
            return
        for workspace in self.folder.iterdir():
            if workspace not in self.results.kept:
                shutil.rmtree(workspace, ignore_errors=True)
        if not self.results.kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _prefetch(self, spec: RunSpec, pending: Callable[[], list[PendingRun]], buckets: str | None) -> None:
        for run in self._prefetcher.next_runs(spec, pending):
            if run.spec not in self._pipelines:
                make = self._factory(run.spec, RunContext(network=run.network, buckets=buckets))
                self._pipelines[run.spec] = self.pool.begin(run.spec, run.stages, make, lambda _: self._on_progress)

    def _begun(self, spec: RunSpec, context: RunContext, origin: str) -> Pipeline | BackgroundRun | CutOffRun:
        self.results.asked_for(spec, origin)
        if spec not in self._pipelines:
            self._pipelines[spec] = self._factory(spec, context)(self._on_progress)
        return self._pipelines[spec]

    def _factory(self, spec: RunSpec, context: RunContext) -> Callable[[OnProgress | None], Pipeline]:
        self._workspaces[spec] = Path(tempfile.mkdtemp(prefix=f"{spec.name}-", dir=self.folder))
        return self.pool.pipeline_factory(spec, self._workspaces[spec], context)
