"""The settings of a pytest session, and the runs that it collects."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.buckets.emulated import store
from t5x_harness.promotion.marker import SMOKE
from t5x_harness.settings.configuration import Configuration, files_of, is_pattern, matches
from t5x_harness.settings.forms import Layer, SettingsError
from t5x_harness.settings.options import SessionOptions
from t5x_harness.settings.project import DeclaredRun, ProjectConfig
from t5x_harness.spec import AotMode, Location, RunSpec, RuntimeChoice
from t5x_harness.version import __version__

if TYPE_CHECKING:
    from t5x_harness.gin.reading import ConfigReader
    from t5x_harness.lint.classify import Classification
    from t5x_harness.runtime.choice import Runtime


@dataclasses.dataclass(frozen=True)
class CollectedRun:
    """A Gin file that is a run, or a run that the project declares.

    Attributes:
      name: the run's name.
      spec: what to run.
      start: the line that makes the file a run.
      problem: the reason why the file is not a run, although it was named.
    """

    name: str
    spec: RunSpec
    start: Location | None = None
    problem: str = ""


class SessionSettings:
    """The settings of a session.

    Args:
      configuration: the settings of its runs, which work in the folder of the project's pyproject.toml.
      compiles: whether programs of collected runs are compiled for their slice: None if the options decide, True to
        compile even if they do not ask for it.

    Attributes:
      configuration: the settings of its runs.
    """

    def __init__(self, configuration: Configuration, *, compiles: bool | None = None) -> None:
        self.configuration = configuration
        self._compiles = compiles
        self._root = configuration.cwd
        self._store = store()
        self._read: dict[Path, tuple[RunSpec, Classification, Sequence[str]]] = {}

    def check(self) -> None:
        """Checks the options and pyproject.toml before anything is collected.

        Raises:
          SettingsError: one of them has a mistake.
        """
        if self.configuration.common.runtime is RuntimeChoice.INSTALLED:
            _ = self.runtime
        self.configuration.with_golden(self.configuration.common, "run")

    @property
    def options(self) -> SessionOptions:
        """The options for all runs together."""
        return self.configuration.session

    @property
    def project(self) -> ProjectConfig:
        """``[tool.t5x_harness]`` of the root folder's pyproject.toml."""
        return self.configuration.project

    @functools.cached_property
    def runtime(self) -> Runtime:
        """The T5X that runs use.

        Raises:
          SettingsError: ``--t5x-runtime=installed`` is given, but no T5X is installed.
        """
        from t5x_harness.runtime.choice import RuntimeChoiceError, find_runtime, folders_of

        try:
            common = self.configuration.common
            return find_runtime(common.runtime, folders_of(self._root, common.python_path))
        except RuntimeChoiceError as error:
            raise SettingsError(str(error)) from None

    @functools.cached_property
    def _reader(self) -> ConfigReader:
        from t5x_harness.gin.reading import ConfigReader

        return ConfigReader(self.runtime.location)

    @property
    def aot(self) -> AotMode | None:
        """How the programs of collected runs are compiled for their slice; None if they are not."""
        if self._compiles is False:
            return None
        return self.configuration.settings.aot or (AotMode.DEPTHS if self._compiles else None)

    @property
    def slice_name(self) -> str:
        """The slice of configs that do not name one."""
        return self.configuration.common.slice

    def header(self) -> str:
        """Returns a line with the versions and the slice that runs use."""
        from t5x_harness.slices.slice import get_slice

        tpu, runtime = get_slice(self.slice_name), self.runtime
        return (
            f"t5x-harness {__version__}: {runtime.kind} T5X {runtime.version}, slice {tpu.name} "
            f"({tpu.num_devices} devices), emulated on CPU"
        )

    def spec(self, gin_files: Sequence[str], *above: Layer, declared: DeclaredRun | None = None) -> RunSpec:
        """Returns a run of these files under the session's settings.

        Args:
          gin_files: the files, by paths as T5X takes them.
          *above: layers that precede the session's own.
          declared: the run, if the project declares it.
        """
        spec = self.configuration.spec(gin_files, *above, declared=declared)
        # Tests that call t5x_run run all stages that execute T5X, and compile nothing for a TPU, as t5x_aot does that.
        gcs_root = self.fake_buckets or spec.settings.gcs_root
        spec = spec.with_settings(until=None, aot=None, gcs_root=gcs_root)
        return dataclasses.replace(spec, python_path=(*spec.python_path, str(self._root)))

    def configured_files(self) -> list[Path]:
        """Returns the gin files that globs match, and pyproject.toml if runs are declared in it."""
        found = files_of(self._root, self.options.gin_files)
        return [*found, self._root / "pyproject.toml"] if self.project.runs else found

    def left_open(self, files: Iterable[Path]) -> list[str]:
        """Returns a line for each configured file that binds a run but leaves a value open, so it is not collected.

        A file that another one includes and completes has no line.
        """
        seen = {file: self._classified(file) for file in files if file.suffix == ".gin"}
        included = {(self._root / name).resolve() for _, _, names in seen.values() for name in names}
        return [
            f"t5x-harness: left out: {self._shown(verdict.reason, file)}"
            for file, (_, verdict, _) in seen.items()
            if verdict.kind == "fragment"
            and verdict.mode
            and not self.is_named(file)
            and file.resolve() not in included
        ]

    def left_out(self, files: Iterable[Path]) -> list[str]:
        """Returns a line with the number of configured runs that are left out, and how to run them.

        Returns nothing if no run is left out.
        """
        number = sum(1 if file.suffix == ".gin" else len(self.project.runs) for file in files)
        runs, them = ("1 configured run", "it") if number == 1 else (f"{number} configured runs", "them")
        return [f"t5x-harness: {runs} left out; -m {SMOKE}, or naming a gin file, runs {them}"] if number else []

    def is_configured(self, file: Path) -> bool:
        """Returns whether a glob matches a gin file."""
        return any(file in matches(self._root, glob) for glob in self.options.gin_files)

    def is_named(self, file: Path) -> bool:
        """Returns whether a gin file is configured by its name and not by a pattern, so that it has to be a run."""
        return any(self._root / name == file for name in self.options.gin_files if not is_pattern(name))

    def run_of(self, file: Path, *, named: bool) -> CollectedRun | None:
        """Returns a gin file as a run, or None if it is only meant to be included.

        Args:
          file: the gin file.
          named: whether the user named this file, so that it has to be reported if it is not a run.
        """
        from t5x_harness.lint.classify import FileKind

        spec, verdict, _ = self._classified(file)
        # A named file that binds a run is one, and lint finds the line that leaves something open.
        if verdict.kind is FileKind.FRAGMENT and not (named and verdict.mode):
            problem = (
                f"{self._shown(verdict.reason, file)}\n    fix: name the config that includes it; or declare a run of "
                "several files, [[tool.t5x_harness.runs]] in pyproject.toml"
            )
            return CollectedRun(file.stem, spec, problem=problem) if named else None
        if verdict.kind is FileKind.BROKEN and not named and not self.is_configured(file):
            return None  # apparently a fragment
        return CollectedRun(file.stem, self._collected(spec, file.stem, mode=verdict.mode), verdict.location)

    def _classified(self, file: Path) -> tuple[RunSpec, Classification, Sequence[str]]:
        """Returns a gin file as a run, its classification, and the files that it includes; each file is read once."""
        if file not in self._read:
            from t5x_harness.lint.classify import classify_program

            spec = self.spec([str(file)])
            program = self._reader.read(spec)
            self._read[file] = spec, classify_program(program), program.files[1:]
        return self._read[file]

    def declared_runs(self) -> list[CollectedRun]:
        """Returns the runs that the project declares."""
        from t5x_harness.lint.classify import FileKind, classify_program

        runs = []
        for declared in self.project.runs:
            spec = self.spec(declared.gin_files, declared=declared)
            verdict = classify_program(self._reader.read(spec))
            seen = verdict.mode if verdict.kind is FileKind.RUN_CONFIG else None
            spec = self._collected(spec, declared.name, mode=spec.mode or seen)
            runs.append(CollectedRun(declared.name, spec, Location(str(self._root / "pyproject.toml"), declared.line)))
        return runs

    def take_surroundings(self) -> None:
        """Treats the emulated Google Cloud that this process uses now as the session's, not as a test's."""
        self._store = store()

    @property
    def fake_buckets(self) -> str | None:
        """The folder of the buckets of the running test's ``fake_gcs``; None if it has none."""
        here = store()
        return str(here.root / "buckets") if here is not None and here != self._store else None

    def _shown(self, reason: str, file: Path) -> str:
        """Returns a reason in which its file is named relative to the folder in which pytest was called."""
        return reason.replace(str(file), os.path.relpath(file, self.configuration.here))

    def _collected(self, spec: RunSpec, name: str, **overrides: Any) -> RunSpec:
        """Returns a run as pytest collects it: up to the last requested stage, with its golden plan."""
        spec = self.configuration.with_golden(spec, name).with_settings(
            until=self.configuration.settings.until, aot=self.aot
        )
        return dataclasses.replace(spec, **overrides)
