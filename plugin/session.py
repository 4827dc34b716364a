"""What one pytest session shares: its options, the warmed worker, and the runs by what they run."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from t5x_harness.spec import Outcome, RunResult, RunSpec, StageResult

from .options import Options

if TYPE_CHECKING:
    from t5x_harness.pipeline import Pipeline
    from t5x_harness.project import ProjectConfig
    from t5x_harness.t5x_runtime import Runtime
    from t5x_harness.workers import InProcess, Zygote

SESSION = pytest.StashKey["HarnessSession"]()

DEFAULT_SLICE = "v3-8"


class HarnessSession:
    """Owns everything that outlives a test: one worker, one folder, one pipeline for each distinct run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = Options.of(config)
        self.results: dict[RunSpec, RunResult] = {}
        self._pipelines: dict[RunSpec, Pipeline] = {}
        self._workers: Zygote | InProcess | None = None
        self._project: ProjectConfig | None = None
        self._runtime: Runtime | None = None
        self._folder: Path | None = None
        self._keep_folder = False

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
        """The slice of configs that name none."""
        return self.options.slice or self.project.slice or DEFAULT_SLICE

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
        )
        return dataclasses.replace(spec, **overrides)  # type: ignore[arg-type]

    def pipeline(self, spec: RunSpec) -> Pipeline:
        """The one pipeline of a run; its stages run once however many items ask for them."""
        if spec not in self._pipelines:
            from t5x_harness.pipeline import Pipeline

            self._pipelines[spec] = Pipeline(
                spec,
                zygote=self.workers(),
                workspace=Path(tempfile.mkdtemp(prefix=f"{spec.name}-", dir=self.folder())),
                timeout=self.options.timeout,
                on_progress=self._progress(),
                t5x_parent=self.runtime.location,
            )
        return self._pipelines[spec]

    def run(self, spec: RunSpec) -> RunResult:
        """Runs all stages of a run and ends its process."""
        pipeline = self.pipeline(spec)
        for stage in pipeline.stages:
            pipeline.stage(stage)
        self.end(spec)
        return self.results[spec]

    def end(self, spec: RunSpec) -> None:
        """Ends a run's process and keeps its result."""
        if pipeline := self._pipelines.pop(spec, None):
            result = self.results[spec] = pipeline.result()
            pipeline.close()
            self._keep_folder |= not result.passed

    def workers(self) -> Zygote | InProcess:
        """The worker that forks runs; made at the first use."""
        if self._workers is None:
            from t5x_harness import workers
            from t5x_harness.pipeline import worker_for

            self._workers = workers.InProcess() if self.options.in_process else worker_for(self.runtime)
        return self._workers

    def folder(self) -> Path:
        """The folder of this session's runs."""
        if self._folder is None:
            parent = self.config.option.basetemp
            if parent is not None:
                Path(parent).mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="t5x-harness-", dir=parent))
        return self._folder

    @property
    def kept_folder(self) -> Path | None:
        """The folder with logs and outputs, where a run failed; None where everything passed."""
        return self._folder if self._keep_folder else None

    def warm(self, items: Iterable[pytest.Item]) -> None:
        """Starts the worker's imports if one of the selected items will want it, without waiting for them."""
        if self.config.option.collectonly or self.options.in_process:
            return
        if any(
            getattr(item, "needs_worker", False) or "t5x_run" in getattr(item, "fixturenames", ()) for item in items
        ):
            self.workers().warm()

    def leave(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Ends the run of ``item`` unless ``nextitem`` is a further stage of it."""
        spec = getattr(item, "spec", None)
        if spec is not None and getattr(nextitem, "spec", None) != spec:
            self.end(spec)

    def failed_before(self, spec: RunSpec, result: StageResult) -> StageResult | None:
        """The failed stage because of which ``result`` was not run."""
        if result.outcome is not Outcome.NOT_RUN:
            return None
        stages = self._pipelines[spec].result().stages
        return next((s for s in stages if s.outcome is Outcome.FAILED), None)

    def close(self) -> None:
        """Ends all processes; removes the folder unless a run failed."""
        for spec in list(self._pipelines):
            self._pipelines.pop(spec).close()
        if self._workers is not None:
            self._workers.close()
        if self._folder is not None and not self._keep_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _progress(self) -> object:
        from .progress import TerminalProgress

        return TerminalProgress(self.config)
