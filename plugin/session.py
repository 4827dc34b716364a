"""What one pytest session shares: the warmed worker, and the runs by what they run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.spec import Outcome, RunResult, RunSpec, Stage, StageResult
from t5x_harness.system.ending import Ending
from t5x_harness.variables import SOURCE_VARIABLE

from .progress import TerminalProgress
from .session_settings import SessionSettings

if TYPE_CHECKING:
    from t5x_harness.google.pool import GooglePool
    from t5x_harness.report import Report
    from t5x_harness.runs.background import BackgroundRun, OnProgress
    from t5x_harness.runs.local import LocalBackend
    from t5x_harness.runs.pipeline import Pipeline
    from t5x_harness.runs.prefetch import PendingRun, Prefetcher
    from t5x_harness.runs.vertex import VertexBackend
    from t5x_harness.workers import InProcess, Zygote

SESSION = pytest.StashKey["HarnessSession"]()

Promote = Callable[[Path, Callable[[Mapping[str, Any]], None]], "Callable[[RunSpec, LocalBackend], VertexBackend]"]
"""Makes what makes the backend of a promoted run, out of the run's folder and who is told of its progress."""


class HarnessSession(SessionSettings):
    """Owns everything that outlives a test: one worker, one folder, one pipeline for each distinct run.

    Args:
      config: pytest's.
      write_report: writes the table of the runs to the terminal.
    """

    def __init__(
        self, config: pytest.Config, write_report: Callable[[pytest.TerminalReporter, HarnessSession], None]
    ) -> None:
        super().__init__(config)
        self._write_report = write_report
        self.results: dict[RunSpec, RunResult] = {}
        self._origins: dict[RunSpec, str] = {}  # by the run as it was asked for, or as its result has it
        self._started = time.perf_counter()
        self._import_seconds = 0.0
        self._pipelines: dict[RunSpec, Pipeline | BackgroundRun] = {}
        self._workspaces: dict[RunSpec, Path] = {}
        self._prefetcher: Prefetcher | None = None
        self._workers: Zygote | InProcess | None = None
        self._googles: dict[tuple[str, str | None], GooglePool] = {}
        self._folder: Path | None = None
        self._kept: list[Path] = []
        self._refusals: list[str] = []
        self._submitted_early: set[RunSpec] = set()
        self._is_interrupted = False

    def pipeline(
        self, spec: RunSpec, *, network: bool = False, promote: Promote | None = None
    ) -> Pipeline | BackgroundRun:
        """The one pipeline of a run; its stages run once however many items ask for them.

        Args:
          spec: what to run.
          network: whether the run may reach beyond this machine, if this call is the first for it.
          promote: makes the backend of a run that is promoted, likewise.
        """
        if spec not in self._pipelines:
            self._pipelines[spec] = self.pipeline_factory(spec, network=network, promote=promote)(self._progress)
        return self._pipelines[spec]

    def pipeline_factory(
        self, spec: RunSpec, *, network: bool, promote: Promote | None = None
    ) -> Callable[[OnProgress], Pipeline]:
        """Makes what makes a run's pipeline, out of who is told of its progress, in any thread."""
        from t5x_harness.runs.pipeline import NO_STORE, Pipeline
        from t5x_harness.system.network import run_environment

        self._workspaces[spec] = Path(tempfile.mkdtemp(prefix=f"{spec.name}-", dir=self.folder()))
        made = functools.partial(
            Pipeline,
            spec,
            zygote=self.workers(),
            workspace=self._workspaces[spec],
            timeout=self.options.timeout,
            t5x_parent=self.runtime.location,
            env={**run_environment(allowed=network), **(self._led_to_fake_gcs() or NO_STORE)},
            google=None if network else self._google(spec),
            promote=promote(self._workspaces[spec], self._progress) if promote is not None else None,
        )
        return lambda on_progress: made(on_progress=on_progress)

    @property
    def runs_at_once(self) -> int:
        """How many collected runs may work at the same time.

        One after the other in one of pytest-xdist's workers, which fill the cores already, with runs in this process,
        for a debugger, with promoted tests, whose jobs are submitted early, and where the user wants it so.
        """
        from t5x_harness.runs.background import runs_at_once

        ahead = self.options.ahead
        if ahead is None and self.options.full_size:
            ahead = 0  # two such runs may need more memory than there is
        alone = self.options.in_process or hasattr(self.config, "workerinput") or self.promotes
        return 1 if alone else runs_at_once(ahead)

    def prefetch(self, spec: RunSpec, find: Callable[[], list[PendingRun]]) -> None:
        """Has a run and those that follow it work in the background, if they may.

        Args:
          spec: the run whose stage is the next to be reported.
          find: finds it and the runs after it.
        """
        from t5x_harness.runs.prefetch import Prefetcher

        self._follow_controller()
        self._prefetcher = self._prefetcher or Prefetcher(self.runs_at_once)
        for run in self._prefetcher.next_runs(spec, find):
            if run.spec not in self._pipelines:
                make = self.pipeline_factory(run.spec, network=run.network)
                self._pipelines[run.spec] = self._prefetcher.begin(run, make, lambda spec: self._progress)

    def stage(
        self, spec: RunSpec, stage: Stage, *, origin: str, network: bool = False, promote: Promote | None = None
    ) -> StageResult:
        """The result of one stage of a run, with its progress on the terminal while it works.

        Args:
          spec: what to run.
          stage: one of its stages.
          origin: the node of pytest's that asks for the run; the first one counts.
          network: see :meth:`pipeline`.
          promote: likewise.
        """
        self._origins.setdefault(spec, origin)
        self._follow_controller()
        with self.showing_progress(), self.watching():
            return self.pipeline(spec, network=network, promote=promote).stage(stage)

    def run(
        self,
        spec: RunSpec,
        *,
        origin: str,
        may_fail: bool = False,
        network: bool = False,
        promote: Promote | None = None,
    ) -> RunResult:
        """Runs all stages of a run and ends its process.

        Args:
          spec: what to run.
          origin: the test that asks for it.
          may_fail: whether the caller judges a failure; it then is no failure of the session.
          network: whether the run may reach beyond this machine.
          promote: makes the backend of a run that is promoted.
        """
        for stage in self.pipeline(spec, network=network, promote=promote).stages:
            self.stage(spec, stage, origin=origin)
        return self.end(spec, may_fail=may_fail)

    def end(self, spec: RunSpec, *, may_fail: bool = False) -> RunResult:
        """Ends a run's process and keeps its result."""
        pipeline = self._pipelines.pop(spec)
        workspace = self._workspaces.pop(spec)
        try:
            result = pipeline.result()
        finally:
            pipeline.close()
        if result.passed or not may_fail:
            self._take(result, self._origins[spec])
        if not result.passed and not may_fail and any(path.is_file() for path in workspace.rglob("*")):
            self._kept.append(workspace)
        return result

    def finish(self) -> None:
        """Ends the runs of which further stages were selected, but never came: after ``-x``.

        Of those that worked in the background, and of which no stage came at all, nothing is told.
        """
        from t5x_harness.runs.background import BackgroundRun

        for spec, run in list(self._pipelines.items()):
            if isinstance(run, BackgroundRun) and not run.is_asked:
                self._pipelines.pop(spec).close()
            else:
                self.end(spec)

    def _follow_controller(self) -> None:
        """Has a worker of xdist's interrupted with its controller; xdist itself does that 5 s later.

        Called in the main thread before any run begins: the kernel forgets it with the thread that asks for it.
        """
        if hasattr(self.config, "workerinput"):
            from t5x_harness.system import processes

            processes.interrupt_with_parent()

    @functools.cached_property
    def ending(self) -> Ending:
        """What handles Ctrl-C while runs work and once the session is to end; it prints the table of all runs."""
        return Ending(pytest.ExitCode.INTERRUPTED, self._tell)

    def _tell(self) -> None:
        capture = self.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            self._write_report(self.config.pluginmanager.getplugin("terminalreporter"), self)

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """While the block lasts, Ctrl-C begins the end of the session, unless a debugger, or jobs, are to handle it."""
        others = self.config.option.usepdb or self.options.in_process or self.promotes
        return contextlib.nullcontext() if others or not self.in_use else self.ending.watching()

    @property
    def in_use(self) -> bool:
        """Whether anything of the harness works, or will."""
        return self.expects_runs or self._workers is not None or bool(self._pipelines)

    def interrupt(self) -> None:
        """Has all runs killed, and keeps what is known of them. May be called again."""
        if self._is_interrupted:
            return
        self._is_interrupted = True
        from t5x_harness.runs.background import BackgroundRun

        for spec, run in self._pipelines.items():
            known = run.known(asked=True) if isinstance(run, BackgroundRun) else run.known()
            if known.stages:
                self._take(known, self._origins[spec])
            if any(stage.outcome is Outcome.FAILED for stage in known.stages):
                self._kept.append(self._workspaces[spec])
        if self._workers is not None:  # afterwards, as it makes stages fail
            self._workers.kill()

    def workers(self) -> Zygote | InProcess:
        """The worker that forks runs; made at the first use."""
        if self._workers is None:
            from t5x_harness import workers
            from t5x_harness.runs.pipeline import worker_for

            self._workers = workers.InProcess() if self.options.in_process else worker_for(self.runtime)
        return self._workers

    def _google(self, spec: RunSpec) -> GooglePool | None:
        """The private Google that a run is led to; None without the extra ``google``, and where none is wanted."""
        from t5x_harness.runs.pipeline import google_for

        return None if self.fake_buckets else google_for(spec, self._googles)

    def _led_to_fake_gcs(self) -> Mapping[str, str]:
        """What a run needs beside the variables of ``fake_gcs`` that it inherits; nothing without ``fake_gcs``."""
        return {SOURCE_VARIABLE: self.fake_buckets} if self.fake_buckets else {}

    def folder(self) -> Path:
        """The folder of this session's runs, beside those of ``tmp_path``."""
        if self._folder is None:
            # A plugin cannot ask for the fixture tmp_path_factory outside a test; this is where pytest keeps it.
            factory: pytest.TempPathFactory = self.config._tmp_path_factory  # type: ignore[attr-defined]
            self._folder = factory.mktemp("t5x-harness", numbered=False)
        return self._folder

    @contextlib.contextmanager
    def showing_progress(self) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """What takes progress events; what it has shown is gone after the block."""
        try:
            yield self._progress
        finally:
            self._progress.clear()

    def say(self, text: str) -> None:
        """Writes a line to the terminal at once, past pytest's capturing of output."""
        self._progress.say(text)

    @functools.cached_property
    def _progress(self) -> TerminalProgress:
        """Made at the first run: pytest's terminal reporter comes after the plugins."""
        return TerminalProgress(self.config)

    @property
    def kept(self) -> Sequence[Path]:
        """The folders with logs and outputs of runs that failed."""
        return self._kept

    @property
    def refusals(self) -> Sequence[str]:
        """Why runs did not begin in the worker that is kept for this shell, though there is one."""
        own = getattr(self._workers, "refusal", "")
        return list(dict.fromkeys([*self._refusals, *([own] if own else [])]))

    def report(self) -> Report:
        """The results of all runs, in the order in which they ended."""
        from t5x_harness.report import Report

        return Report(
            tuple(self.results.values()),
            tuple(self._origins[spec] for spec in self.results),
            seconds=time.perf_counter() - self._started,
            import_seconds=0.0 if self.refusals else self.import_seconds,  # a refusal says that there was a wait
        )

    @property
    def import_seconds(self) -> float:
        """How long runs have waited for imports; under pytest-xdist, in the process that has waited longest."""
        return max(self._import_seconds, getattr(self._workers, "seconds_waited", 0.0))

    def to_json(self) -> dict[str, Any]:
        """What another process needs to report this session's runs: no metrics, predictions, configs or bindings."""
        results = [
            dataclasses.replace(result, metrics={}, predictions=(), operative_config="", bindings=())
            for result in self.results.values()
        ]
        return {
            "results": [result.to_json() for result in results],
            "origins": [self._origins[spec] for spec in self.results],
            "import_seconds": self.import_seconds,
            "kept": [str(path) for path in self._kept],
            "refusals": self.refusals,
        }

    def add_json(self, value: Mapping[str, Any]) -> None:
        """Adds what :meth:`to_json` gave in another process."""
        for result, origin in zip(map(RunResult.from_json, value["results"]), value["origins"], strict=True):
            self._take(result, origin)
        self._import_seconds = max(self._import_seconds, value["import_seconds"])
        self._kept += map(Path, value["kept"])
        self._refusals += value["refusals"]

    def _take(self, result: RunResult, origin: str) -> None:
        """Keeps the last result of what several tests run alike, or the first one that failed."""
        self._origins.setdefault(result.spec, origin)
        before = self.results.get(result.spec)
        if before is None or before.passed:
            self.results[result.spec] = result

    def warm_early(self) -> None:
        """Starts the worker's imports while pytest still collects, if the command line asks for runs."""
        distributes = self.config.getoption("dist", "no") != "no"  # xdist's workers have workers of their own
        if self.expects_runs and not distributes:
            self._warm()

    def warm(self, items: Iterable[pytest.Item]) -> None:
        """Starts the worker's imports if one of the selected items will want it, without waiting for them."""
        if any(
            getattr(item, "needs_worker", False) or "t5x_run" in getattr(item, "fixturenames", ()) for item in items
        ):
            self._warm()

    def _warm(self) -> None:
        if not self.config.option.collectonly and not self.options.in_process:
            self.workers().warm()
            if google := self._google(self.spec(())):
                google.warm()

    def leave(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Ends the run of ``item`` unless ``nextitem`` is a further stage of it."""
        spec = getattr(item, "spec", None)
        if spec in self._pipelines and spec not in self._submitted_early and getattr(nextitem, "spec", None) != spec:
            self.end(spec)

    def submit_early(self, spec: RunSpec) -> None:
        """Sends the job of a promoted run whose items that wait for it come later, after those of other runs."""
        from t5x_harness.runs.pipeline import Pipeline

        run = self._pipelines.get(spec)
        if isinstance(run, Pipeline):
            self._submitted_early.add(spec)
            run.submit_early()

    def arrived(self, spec: RunSpec) -> None:
        """The items have come that wait for a run's job."""
        self._submitted_early.discard(spec)

    def failed_before(self, spec: RunSpec, result: StageResult) -> StageResult | None:
        """The failed stage because of which ``result`` was not run."""
        if result.outcome is not Outcome.NOT_RUN:
            return None
        stages = self._pipelines[spec].result().stages
        return next((s for s in stages if s.outcome is Outcome.FAILED), None)

    def close(self) -> None:
        """Ends all processes; removes the folders of the runs that did not fail."""
        for spec in list(self._pipelines):
            self._pipelines.pop(spec).close()
        if self._workers is not None:
            self._workers.close()  # which ends a thread's wait for it
        if self._prefetcher is not None:
            self._prefetcher.join(patient=not self._is_interrupted)
        for google in self._googles.values():
            google.close(patient=not self._is_interrupted)
        if self._folder is not None and self._folder.is_dir():  # whoever clears up /tmp may have been here
            for workspace in self._folder.iterdir():
                if workspace not in self._kept:
                    shutil.rmtree(workspace, ignore_errors=True)
            if not self._kept:
                shutil.rmtree(self._folder, ignore_errors=True)
        if "ending" in vars(self):
            self.ending.restore()
