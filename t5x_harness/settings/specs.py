"""Settings become a :class:`~t5x_harness.spec.RunSpec`: the same way for commands, pytest and jobs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from t5x_harness.settings.options import RUNS, Option
from t5x_harness.settings.project import DeclaredRun, ProjectConfig, SettingsError
from t5x_harness.spec import (
    DEFAULT_SLICE,
    READ_SECONDS,
    STAGE_SECONDS,
    AotMode,
    GcsPaths,
    Mode,
    RunSettings,
    RunSpec,
    RuntimeChoice,
    Stage,
    StandInPolicy,
)

_APART = ("search_paths", "python_path", "ignore", "select")
"""Lists whose values may stand in one word, with commas between them."""


_ENUMS: Mapping[str, Callable[[str], Any]] = {
    "run_mode": Mode,
    "until": Stage,
    "aot": AotMode,
    "gcs": GcsPaths,
    "standins": StandInPolicy,
    "runtime": RuntimeChoice,
}


@dataclasses.dataclass(frozen=True)
class Given:
    """What the command line and pytest's ini file say of runs; the project's table fills what they leave open.

    Attributes:
      here: the folder that its relative paths start from.
      name: gives the option of a field as it is typed here.
      others: as :mod:`t5x_harness.settings.options` explains them.
    """

    here: Path
    name: Callable[[Option], str]
    gin_files: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    run_mode: Mode | None = None
    slice: str | None = None
    runtime: RuntimeChoice = RuntimeChoice.AUTO
    gcs_root: str | None = None
    tfds_data_dir: str | None = None
    standins: StandInPolicy | None = None
    read_seconds: int | None = None
    gcs: GcsPaths | None = None
    model_dir: str | None = None
    full_size: bool = False
    full_mesh: bool = False
    tpu_numerics: bool | None = None
    exact_numerics: bool | None = None
    until: Stage | None = None
    aot: AotMode | None = None
    golden: str | None = None
    golden_update: bool = False
    timeout: float = STAGE_SECONDS
    ahead: int | None = None
    in_process: bool = False
    network: str = "forbid"
    ignore: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    strict: bool = False
    github_annotations: str = "auto"

    @classmethod
    def of(cls, values: Mapping[str, Any], here: Path, name: Callable[[Option], str]) -> Self:
        """Takes them out of named values, among which may be others; None is as good as none."""
        given = {
            row.field: value
            for row in RUNS
            if (row.shell or row.pytest or row.ini) and (value := values.get(row.field)) is not None
        }
        for field in (row.field for row in RUNS if row.kind == "list" and row.field in given):
            parts = [part.strip() for text in given[field] for part in text.split(",")] if field in _APART else []
            given[field] = tuple(filter(None, parts)) if field in _APART else tuple(given[field])
        for field in _ENUMS.keys() & given.keys():
            given[field] = _ENUMS[field](given[field])
        return cls(here, name, **given)

    def spec(self, gin_files: Sequence[str], project: ProjectConfig, cwd: Path, **overrides: Any) -> RunSpec:
        """Builds a run of these files.

        Args:
          gin_files: as T5X takes them.
          project: what holds where the options say nothing.
          cwd: the folder that the run works in.
          **overrides: settings of the run that are known better.

        Raises:
          SettingsError: a code of findings is not one.
        """
        settings = {
            "tfds_data_dir": self._seen_from(cwd, self.tfds_data_dir) if self.tfds_data_dir else None,
            "full_size": self.full_size,
            "full_mesh": self.full_mesh,
            "tpu_numerics": project.tpu_numerics if self.tpu_numerics is None else self.tpu_numerics,
            "exact_numerics": project.exact_numerics if self.exact_numerics is None else self.exact_numerics,
            "model_dir": self.model_dir,
            "ignore": self.silenced(project),
            "standins": self.standins or project.standins or StandInPolicy.MISSING,
            "samples": project.samples,
            "read_seconds": self.read_seconds or project.read_seconds or READ_SECONDS,
            "gcs": self.gcs or project.gcs or GcsPaths.FOLDER,
            "gcs_root": self.gcs_root or project.gcs_root,
            "strict": self.strict or project.strict,
            "until": self.until,
            "aot": self.aot or project.aot,
            "prices": tuple(sorted(project.prices.items())) if self.aot or project.aot else (),
        }
        fields: dict[str, Any] = {
            "bindings": (*project.bindings, *self.bindings),
            "search_paths": (*(self._seen_from(cwd, path) for path in self.search_paths), *project.search_paths),
            "mode": self.run_mode,
            "slice": self.slice or project.slice or DEFAULT_SLICE,
            "runtime": self.runtime,
            "python_path": (*(os.path.join(self.here, path) for path in self.python_path), *project.python_path),
        }
        return RunSpec(
            gin_files=tuple(gin_files),
            cwd=os.fspath(cwd),
            settings=RunSettings(**{**settings, **overrides}),
            **fields,
        )

    def as_declared(self, spec: RunSpec, run: DeclaredRun, project: ProjectConfig) -> RunSpec:
        """Returns a run as the project declares it.

        Options come first, then what the run says, and then what holds for all runs of the project; of bindings, which
        add up, the last one counts.

        Args:
          spec: of :meth:`spec`, for the run's files.
          run: that the project declares.
          project: the project.
        """
        return dataclasses.replace(
            spec,
            bindings=(*project.bindings, *run.bindings, *self.bindings),
            search_paths=(*spec.search_paths[: len(self.search_paths)], *run.search_paths, *project.search_paths),
            mode=self.run_mode or run.mode,
            slice=self.slice or run.slice or spec.slice,
        )

    def silenced(self, project: ProjectConfig) -> tuple[str, ...]:
        """Returns the codes of findings that nobody wants to see.

        Raises:
          SettingsError: one is not a code.
        """
        from t5x_harness.findings.silencing import codes_to_silence, not_codes
        from t5x_harness.rulebook.rules import all_codes

        for field, codes in (("ignore", self.ignore), ("select", self.select)):
            if problem := not_codes(codes, all_codes):
                raise SettingsError(f"{self.typed(field)}: {problem}")
        return codes_to_silence((*project.ignore, *self.ignore), self.select or project.select, all_codes)

    def golden_of(self, name: str, project: ProjectConfig) -> dict[str, Any]:
        """Returns the settings of a run's golden plan; none where nobody asks for one.

        Args:
          name: the run's.
          project: its table may name the folder.

        Raises:
          SettingsError: plans are to be written, and nobody says where.
        """
        target = os.path.join(self.here, self.golden) if self.golden else project.plan_golden
        if target is None:
            if self.golden_update:
                raise SettingsError(
                    f"{self.typed('golden_update')}: name the file or folder, too: {self.typed('golden')}=PATH"
                )
            return {}
        return {
            "plan_golden": os.path.abspath(golden_file(target, name)),
            "plan_golden_update": self.golden_update,
        }

    def check_goldens(self, specs: Sequence[RunSpec]) -> None:
        """Checks that each run keeps its plan in a file of its own.

        Raises:
          SettingsError: two do not.
        """
        files: dict[str, RunSpec] = {}
        for spec in specs:
            file = spec.settings.plan_golden
            if file is not None and (other := files.setdefault(file, spec)) != spec:
                raise SettingsError(
                    f"{self.typed('golden')}: {file} would be the golden plan of {other.gin_files[-1]} and of "
                    f"{spec.gin_files[-1]}; for several runs name a folder, and give each run its own name"
                )

    def typed(self, field: str) -> str:
        """Returns the name of an option as it is typed here."""
        return self.name(next(row for row in RUNS if row.field == field))

    def _seen_from(self, cwd: Path, path: str) -> str:
        """Returns a path as runs find it that work in ``cwd``."""
        return path if not path or "://" in path or self.here == cwd else os.path.join(self.here, path)


def rewrite_gin(arguments: Sequence[str]) -> list[str]:
    """Turns ``--gin.NAME=VALUE`` into ``--gin_bindings=NAME = VALUE``, as T5X does.

    Raises:
      SettingsError: an argument has no ``=``, no name, or ``--gin.`` twice.
    """
    rewritten = []
    for argument in arguments:
        if argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not equals or not name:
                raise SettingsError(f"{argument}: a gin binding has the form --gin.NAME=VALUE")
            if name.startswith(("--gin.", "gin.")):
                raise SettingsError(f"{argument}: --gin. stands there twice, write --{name.removeprefix('--')}={value}")
            rewritten.append(f"--gin_bindings={name} = {value}")
        else:
            rewritten.append(argument)
    return rewritten


def golden_file(target: str, name: str) -> str:
    """Returns where the golden plan of a run is: the file that was named, which has a suffix, or one in the folder."""
    path = Path(target)
    is_folder = path.is_dir() or not path.suffix or target.endswith("/")
    return os.fspath(path / f"{name}.plan" if is_folder else path)
