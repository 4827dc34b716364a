"""What one pytest session shares: its options, the warmed worker, and the runs by what they run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.google.here import SOURCE_VARIABLE, store
from t5x_harness.spec import GCS, Outcome, RunResult, RunSpec, Stage, StageResult

from . import marks
from .options import Options, network_policy
from .progress import TerminalProgress

if TYPE_CHECKING:
    from t5x_harness.ahead import OnProgress, RunAhead
    from t5x_harness.backends.local import LocalBackend
    from t5x_harness.backends.vertex import VertexBackend
    from t5x_harness.google.of_runs import GoogleOfRuns
    from t5x_harness.pipeline import Pipeline
    from t5x_harness.project import ProjectConfig
    from t5x_harness.t5x_runtime import Runtime
    from t5x_harness.workers import InProcess, Zygote

    from .ahead import Lookahead
    from .gin_items import StageItem

SESSION = pytest.StashKey["HarnessSession"]()

Promote = Callable[[Path, Callable[[Mapping[str, Any]], None]], "Callable[[RunSpec, LocalBackend], VertexBackend]"]
"""Makes what makes the backend of a promoted run, out of the run's folder and who is told of its progress."""

DEFAULT_SLICE = "v3-8"


class HarnessSession:
    """Owns everything that outlives a test: one worker, one folder, one pipeline for each distinct run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = Options.of(config)
        self.results: dict[RunSpec, RunResult] = {}
        self._pipelines: dict[RunSpec, Pipeline | RunAhead] = {}
        self._workspaces: dict[RunSpec, Path] = {}
        self._lookahead: Lookahead | None = None
        self._workers: Zygote | InProcess | None = None
        self._googles: dict[tuple[str, str | None], GoogleOfRuns] = {}
        self._store = store()
        self._project: ProjectConfig | None = None
        self._runtime: Runtime | None = None
        self._folder: Path | None = None
        self._kept: list[Path] = []
        self._refusals: list[str] = []
        self._ahead: set[RunSpec] = set()

    def check(self) -> None:
        """Checks what the options and pyproject.toml say before pytest collects anything.

        Raises:
          pytest.UsageError: something is wrong with it.
        """
        network_policy(self.config)
        if self.options.slice or self.project.slice:
            _ = self.slice_name
        if self.options.runtime == "installed":
            _ = self.runtime
        if self.options.ignore:
            from t5x_harness.rule import all_codes
            from t5x_harness.silencing import not_codes

            if problem := not_codes(self.options.ignore, all_codes):
                raise pytest.UsageError(f"--t5x-ignore: {problem}")
        if self.options.golden_update and not (self.options.golden or self.project.plan_golden):
            from t5x_harness.plan.golden_check import NOTHING_TO_UPDATE

            raise pytest.UsageError(NOTHING_TO_UPDATE)

    @property
    def project(self) -> ProjectConfig:
        """``[tool.t5x_harness]`` of the root folder's pyproject.toml; read once.

        Raises:
          pytest.UsageError: the table has a mistake in it.
        """
        if self._project is None:
            from t5x_harness.project import ProjectError, load_project

            try:
                self._project = load_project(self.config.rootpath)
            except ProjectError as error:
                raise pytest.UsageError(str(error)) from None
        return self._project

    @property
    def runtime(self) -> Runtime:
        """The T5X that runs are made with.

        Raises:
          pytest.UsageError: ``--t5x-runtime=installed`` and none is installed.
        """
        if self._runtime is None:
            from t5x_harness.t5x_runtime import RuntimeChoiceError, find_runtime

            try:
                self._runtime = find_runtime(self.options.runtime)
            except RuntimeChoiceError as error:
                raise pytest.UsageError(str(error)) from None
        return self._runtime

    @property
    def slice_name(self) -> str:
        """The slice of configs that name none.

        Raises:
          pytest.UsageError: there is no such slice.
        """
        name = self.options.slice or self.project.slice or DEFAULT_SLICE
        if problem := marks.slice_problem(name):
            raise pytest.UsageError(f"slice {problem}")
        return name

    def spec(self, gin_files: Sequence[str], **overrides: object) -> RunSpec:
        """A run of these files under the session's options; ``overrides`` are fields of :class:`RunSpec`."""
        spec = RunSpec(
            gin_files=tuple(gin_files),
            bindings=(*self.project.bindings, *self.options.bindings),
            search_paths=(*self.options.search_paths, *self.project.search_paths),
            slice=self.slice_name,
            runtime=self.options.runtime,
            python_path=(*self.project.python_path, str(self.config.rootpath)),
            full_size=self.options.full_size,
            cwd=str(self.config.rootpath),
            ignore=(*self.project.ignore, *self.options.ignore),
            standins=self.options.standins or self.project.standins or "missing",
            samples=self.project.samples,
            gcs=self.options.gcs or self.project.gcs or GCS[0],
            gcs_root=self._fake_buckets or self.options.gcs_root or self.project.gcs_root,
        )
        return dataclasses.replace(spec, **overrides)  # type: ignore[arg-type]

    def golden(self, name: str) -> dict[str, Any]:
        """The fields of :class:`RunSpec` for the golden plan of a collected run; none if nobody asks for one."""
        target = self.project.plan_golden
        if self.options.golden is not None:
            slash = "/" if self.options.golden.endswith("/") else ""
            target = f"{self.config.invocation_params.dir / self.options.golden}{slash}"
        if target is None:
            return {}
        from t5x_harness.plan.golden_check import golden_file

        return {"golden": golden_file(target, name), "golden_update": self.options.golden_update}

    def check_goldens(self, items: Iterable[pytest.Item]) -> None:
        """Checks that each of the selected runs keeps its plan in a file of its own.

        Raises:
          pytest.UsageError: two do not.
        """
        specs = {item.spec for item in items if hasattr(item, "spec")}
        if any(spec.golden for spec in specs):
            from t5x_harness.plan.golden_check import shared_golden

            if problem := shared_golden(sorted(specs, key=lambda spec: spec.gin_files)):
                raise pytest.UsageError(problem)

    def pipeline(self, spec: RunSpec, *, network: bool = False, promote: Promote | None = None) -> Pipeline | RunAhead:
        """The one pipeline of a run; its stages run once however many items ask for them.

        Args:
          spec: what to run.
          network: whether the run may reach beyond this machine, if this call is the first for it.
          promote: makes the backend of a run that is promoted, likewise.
        """
        if spec not in self._pipelines:
            self._pipelines[spec] = self.maker(spec, network=network, promote=promote)(self._progress)
        return self._pipelines[spec]

    def maker(
        self, spec: RunSpec, *, network: bool, promote: Promote | None = None
    ) -> Callable[[OnProgress], Pipeline]:
        """Makes what makes a run's pipeline, out of who is told of its progress, in any thread."""
        from t5x_harness.network import run_environment
        from t5x_harness.pipeline import NO_STORE, Pipeline

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

    def look_ahead(self, item: StageItem) -> None:
        """Has the run of a collected stage, and those of the stages that follow it, work at once."""
        from .ahead import Lookahead

        self._lookahead = self._lookahead or Lookahead(self.config, self.options)
        for run in self._lookahead.runs(item):
            if run.spec not in self._pipelines:
                make = self.maker(run.spec, network=run.network)
                self._pipelines[run.spec] = self._lookahead.begin(run, make, lambda spec: self._progress)

    def stage(
        self, spec: RunSpec, stage: Stage, *, network: bool = False, promote: Promote | None = None
    ) -> StageResult:
        """The result of one stage of a run, with its progress on the terminal while it works; see :meth:`pipeline`."""
        with self.showing_progress():
            return self.pipeline(spec, network=network, promote=promote).stage(stage)

    def run(
        self, spec: RunSpec, *, may_fail: bool = False, network: bool = False, promote: Promote | None = None
    ) -> RunResult:
        """Runs all stages of a run and ends its process.

        Args:
          spec: what to run.
          may_fail: whether the caller judges a failure; it then is no failure of the session.
          network: whether the run may reach beyond this machine.
          promote: makes the backend of a run that is promoted.
        """
        for stage in self.pipeline(spec, network=network, promote=promote).stages:
            self.stage(spec, stage)
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
            self.results[spec] = result
        if not result.passed and not may_fail and any(path.is_file() for path in workspace.rglob("*")):
            self._kept.append(workspace)
        return result

    def finish(self) -> None:
        """Ends the runs of which further stages were selected, but never came: after ``-x``.

        Of those that worked ahead, and of which no stage came at all, nothing is told.
        """
        from t5x_harness.ahead import RunAhead

        for spec, run in list(self._pipelines.items()):
            if isinstance(run, RunAhead) and not run.is_asked:
                self._pipelines.pop(spec).close()
            else:
                self.end(spec)

    def take_surroundings(self) -> None:
        """Takes the private Google that this process was led to just now as where it is, and not as a test's own."""
        self._store = store()

    def workers(self) -> Zygote | InProcess:
        """The worker that forks runs; made at the first use."""
        if self._workers is None:
            from t5x_harness import workers
            from t5x_harness.pipeline import worker_for

            self._workers = workers.InProcess() if self.options.in_process else worker_for(self.runtime)
        return self._workers

    def _google(self, spec: RunSpec) -> GoogleOfRuns | None:
        """The private Google that a run is led to; None without the extra ``google``, and where none is wanted."""
        from t5x_harness.pipeline import google_for

        return None if self._fake_buckets else google_for(spec, self._googles)

    def _led_to_fake_gcs(self) -> Mapping[str, str]:
        """What a run needs beside the variables of ``fake_gcs`` that it inherits; nothing without ``fake_gcs``."""
        return {SOURCE_VARIABLE: self._fake_buckets} if self._fake_buckets else {}

    @property
    def _fake_buckets(self) -> str | None:
        """The folder of the buckets in ``fake_gcs``, which are the user's own; None if the test that runs has none."""
        here = store()
        return str(here.root / "buckets") if here is not None and here != self._store else None

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

    def to_json(self) -> dict[str, Any]:
        """What another process needs to report this session's runs: no metrics, predictions, configs or bindings."""
        results = [
            dataclasses.replace(result, metrics={}, predictions=(), operative_config="", bindings=())
            for result in self.results.values()
        ]
        return {
            "results": [result.to_json() for result in results],
            "kept": [str(path) for path in self._kept],
            "refusals": self.refusals,
        }

    def add_json(self, value: Mapping[str, Any]) -> None:
        """Adds what :meth:`to_json` gave in another process."""
        for result in map(RunResult.from_json, value["results"]):
            self.results[result.spec] = result
        self._kept += map(Path, value["kept"])
        self._refusals += value["refusals"]

    @property
    def expects_runs(self) -> bool:
        """Whether the command line asks for runs: ``-m smoke``, ``-m tpu``, or a gin file by name."""
        expression = self.config.option.markexpr or ""
        if marks.selects_only(expression, marks.SMOKE) or marks.promotes_tpu(expression):
            return True
        return any(str(arg).partition("::")[0].endswith(".gin") for arg in self.config.args)

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
        if spec in self._pipelines and spec not in self._ahead and getattr(nextitem, "spec", None) != spec:
            self.end(spec)

    def send_ahead(self, spec: RunSpec) -> None:
        """Sends the job of a promoted run whose items that wait for it come later, after those of other runs."""
        from t5x_harness.pipeline import Pipeline

        run = self._pipelines.get(spec)
        if isinstance(run, Pipeline):
            self._ahead.add(spec)
            run.send_ahead()

    def arrived(self, spec: RunSpec) -> None:
        """The items have come that wait for a run's job."""
        self._ahead.discard(spec)

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
        if self._lookahead is not None:
            self._lookahead.join()
        for google in self._googles.values():
            google.close()
        if self._folder is not None and self._folder.is_dir():  # whoever clears up /tmp may have been here
            for workspace in self._folder.iterdir():
                if workspace not in self._kept:
                    shutil.rmtree(workspace, ignore_errors=True)
            if not self._kept:
                shutil.rmtree(self._folder, ignore_errors=True)
