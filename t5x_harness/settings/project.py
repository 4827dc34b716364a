"""``[tool.t5x_harness]`` of a pyproject.toml: which gin files are runs, and what they are run with.

For example::

    [tool.t5x_harness]
    gin_files = ["configs/runs/*.gin"]
    search_paths = ["configs"]
    python_path = ["src"]
    slice = "v3-8"
    bindings = ["USE_CACHED_TASKS = False"]
    ignore = ["CKP14"]
    plan_golden = "golden"
    standins = "missing"
    gcs_root = "buckets"

    [tool.t5x_harness.samples]
    my_task = "samples/my_task.jsonl"

    [tool.t5x_harness.vertex]
    project = "my-project"
    location = "us-central1"
    bucket = "my-bucket"
    image = "us-docker.pkg.dev/my-project/t5x/t5x:1"

    [tool.t5x_harness.tpu]
    accelerator_type = "TPU_V3"
    accelerator_count = 8

    [tool.t5x_harness.prices]
    v3 = 2.0

    [[tool.t5x_harness.runs]]
    name = "small_finetune"
    gin_files = ["t5x/examples/t5/t5_1_1/small.gin", "t5x/configs/runs/finetune.gin"]
    bindings = { MIXTURE_OR_TASK_NAME = "my_task", TRAIN_STEPS = 1_000_100 }
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.buckets.emulated import buckets_in
from t5x_harness.spec import AotMode, GcsPaths, Mode, StandInPolicy

_TABLE = "tool.t5x_harness"
_RUNS = f"{_TABLE}.runs"
_VERTEX = f"{_TABLE}.vertex"
_TPU = f"{_TABLE}.tpu"
_PRICES = f"{_TABLE}.prices"
_RUN_KEYS = ("name", "gin_files", "bindings", "mode", "slice", "search_paths")


class SettingsError(ValueError):
    """Settings contradict each other, or one has no such value; the message names the option."""


class ProjectError(SettingsError):
    """The table has a mistake in it; the message begins with file and line."""


@dataclasses.dataclass(frozen=True)
class DeclaredRun:
    """One ``[[tool.t5x_harness.runs]]``: several gin files and bindings that make one run.

    Attributes:
      name: what the run is called in reports.
      gin_files: paths as T5X takes them, in order.
      bindings: gin statements, parsed after the files.
      mode: None to see it from what the files bind.
      slice: None for the project's.
      search_paths: searched before the project's.
      line: where the run is declared.
    """

    name: str
    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = ()
    mode: Mode | None = None
    slice: str | None = None
    search_paths: tuple[str, ...] = ()
    line: int = 1


@dataclasses.dataclass(frozen=True)
class ProjectConfig:
    """The whole table; everything is empty where there is none.

    Attributes:
      root: folder of the pyproject.toml; globs are relative to it.
      gin_files: globs of gin files to collect as runs, one each.
      search_paths: folders where gin files are looked up, absolute.
      bindings: gin statements for every run, before those of the run.
      slice: TPU slice of runs that name none.
      python_path: folders with the configs' own modules, absolute.
      ignore: codes of findings that nobody wants to see, or families of them.
      select: the only codes to see, likewise; empty for all.
      strict: warnings are errors.
      tpu_numerics: steps have a TPU's default precision of matrix products.
      exact_numerics: steps are compiled as T5X compiles them.
      standins: what is generated: ``off``, ``missing`` or ``all``; None if the table does not say.
      aot: how the full-size programs are compiled for the slice; None if the table does not say.
      samples: rows in the place of data, as :class:`~t5x_harness.spec.RunSpec` takes them.
      read_seconds: how long resolve reads each split of the data; None if the table does not say.
      gcs: ``folder``, ``fuse`` or ``off``; None if the table does not say.
      gcs_root: folder with a folder for each bucket, absolute.
      plan_golden: folder with the golden plans of the runs, absolute.
      vertex: where jobs go, by the names of :class:`~t5x_harness.vertex.target.VertexTarget`; what the table says.
      tpu: what promoted tests ask for where their markers say nothing, by the names of
        :class:`~t5x_harness.promotion.resources.TpuResources`; with it, configs are promoted, too.
      prices: US dollars for an hour of one chip, by TPU generation; where the table says nothing, list prices count.
      runs: the declared runs.
    """

    root: Path
    gin_files: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    slice: str | None = None
    python_path: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    strict: bool = False
    tpu_numerics: bool = False
    exact_numerics: bool = False
    standins: str | None = None
    aot: str | None = None
    samples: tuple[str, ...] = ()
    read_seconds: int | None = None
    gcs: str | None = None
    gcs_root: str | None = None
    plan_golden: str | None = None
    vertex: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tpu: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prices: Mapping[str, float] = dataclasses.field(default_factory=dict)
    runs: tuple[DeclaredRun, ...] = ()


def find_project(folder: Path) -> ProjectConfig:
    """Loads the nearest pyproject.toml, in ``folder`` or above it.

    Raises:
      ProjectError: it has a mistake in it.
    """
    start = folder.absolute()
    for candidate in (start, *start.parents):
        if (candidate / "pyproject.toml").is_file():
            return load_project(candidate)
    return ProjectConfig(root=start)


def load_project(folder: Path) -> ProjectConfig:
    """Loads the pyproject.toml of one folder; an empty config if there is none, or if it has no such table.

    Raises:
      ProjectError: it is not TOML, or the table has a mistake in it.
    """
    file = folder / "pyproject.toml"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ProjectConfig(root=folder)
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{file}: cannot be read: {error}") from None
    import tomllib  # here, as every pytest with the plugin imports this module

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProjectError(f"{file}: not valid TOML: {error}") from None
    tool = document.get("tool", {})
    table = tool.get("t5x_harness", {}) if isinstance(tool, dict) else {}
    return _Reader(file, text).project(folder, table)


class _Reader:
    """Checks the table, with a place for each complaint."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._places = tuple(_places(text))

    def project(self, folder: Path, table: Any) -> ProjectConfig:
        if not isinstance(table, dict):
            raise self._error("[tool.t5x_harness] has to be a table", (_TABLE, 0, ""))
        keys = [field.name for field in dataclasses.fields(ProjectConfig) if field.name != "root"]
        self._known(table, keys, (_TABLE, 0))
        runs = table.get("runs", [])
        if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
            raise self._error("runs are declared as [[tool.t5x_harness.runs]]", (_TABLE, 0, "runs"))
        declared = tuple(self._run(run, index) for index, run in enumerate(runs))
        for index, run in enumerate(declared):
            if run.name in (other.name for other in declared[:index]):
                raise self._error(f"two runs are called {run.name!r}: give each its own name", (_RUNS, index, "name"))
        where = (_TABLE, 0)
        return ProjectConfig(
            root=folder,
            gin_files=self._texts(table, "gin_files", where),
            search_paths=self._folders(folder, table, "search_paths", where),
            bindings=self._bindings(table, where),
            slice=self._text(table, "slice", where),
            python_path=self._folders(folder, table, "python_path", where),
            ignore=self._codes(table, "ignore", where),
            select=self._codes(table, "select", where),
            strict=self._flag(table, "strict", where),
            tpu_numerics=self._flag(table, "tpu_numerics", where),
            exact_numerics=self._flag(table, "exact_numerics", where),
            standins=self._one_of(StandInPolicy, table, "standins", where),
            aot=self._one_of(AotMode, table, "aot", where),
            samples=self._samples(folder, table, where),
            read_seconds=self._seconds(table, "read_seconds", where),
            gcs=self._one_of(GcsPaths, table, "gcs", where),
            gcs_root=buckets_in(given) if (given := self._folder(folder, table, "gcs_root", where)) else None,
            plan_golden=str(folder / golden) if (golden := self._text(table, "plan_golden", where)) else None,
            vertex=self._vertex(table, where),
            tpu=self._tpu(table, where),
            prices=self._prices(table, where),
            runs=declared,
        )

    def _vertex(self, table: Mapping[str, Any], where: tuple[str, int]) -> Mapping[str, str]:
        from t5x_harness.vertex.target import FIELDS

        value = table.get("vertex", {})
        if not isinstance(value, dict):
            raise self._error("vertex has to be a table", (*where, "vertex"))
        place = (_VERTEX, 0)
        self._known(value, FIELDS, place)
        return {key: text for key in value if (text := self._text(value, key, place)) is not None}

    def _tpu(self, table: Mapping[str, Any], where: tuple[str, int]) -> Mapping[str, Any]:
        from t5x_harness.promotion.resources import ResourcesError, TpuResources

        value = table.get("tpu", {})
        if not isinstance(value, dict):
            raise self._error("tpu has to be a table", (*where, "tpu"))
        try:
            TpuResources.of(value)
        except ResourcesError as error:
            raise self._error(
                f"tpu: {error}", (_TPU, 0, next((key for key in value if key in str(error)), ""))
            ) from None
        return dict(value)

    def _prices(self, table: Mapping[str, Any], where: tuple[str, int]) -> Mapping[str, float]:
        from t5x_harness.slices.generations import GENERATIONS

        value = table.get("prices", {})
        if not isinstance(value, dict):
            raise self._error("prices has to be a table of TPU generations", (*where, "prices"))
        place = (_PRICES, 0)
        self._known(value, [generation.name for generation in GENERATIONS], place)
        for name, price in value.items():
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < math.inf:
                raise self._error(
                    f"{name} has to be a price in US dollars for an hour of one chip, not {price!r}", (*place, name)
                )
        return {name: float(price) for name, price in value.items()}

    def _run(self, run: Mapping[str, Any], index: int) -> DeclaredRun:
        where = (_RUNS, index)
        self._known(run, _RUN_KEYS, where)
        name = self._text(run, "name", where)
        gin_files = self._texts(run, "gin_files", where)
        if not name or not gin_files:
            raise self._error("a run needs a name and gin_files", (*where, ""))
        mode = self._text(run, "mode", where)
        if mode is not None and mode not in list(Mode):
            raise self._error(f"mode {mode!r} is none of {', '.join(Mode)}", (*where, "mode"))
        return DeclaredRun(
            name=name,
            gin_files=gin_files,
            bindings=self._bindings(run, where),
            mode=Mode(mode) if mode is not None else None,
            slice=self._text(run, "slice", where),
            search_paths=self._folders(self._file.parent, run, "search_paths", where),
            line=self._line((*where, "")),
        )

    def _known(self, table: Mapping[str, Any], keys: Sequence[str], where: tuple[str, int]) -> None:
        for key in table:
            if key not in keys:
                import difflib

                near = difflib.get_close_matches(key, keys, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(keys)}"
                raise self._error(f"unknown key {key!r}: {hint}", (*where, key))

    def _text(self, table: Mapping[str, Any], key: str, where: tuple[str, int]) -> str | None:
        value = table.get(key)
        if value is not None and not isinstance(value, str):
            raise self._error(f"{key} has to be a string, not {value!r}", (*where, key))
        return value

    def _texts(self, table: Mapping[str, Any], key: str, where: tuple[str, int]) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._error(f"{key} has to be a list of strings, not {value!r}", (*where, key))
        return tuple(value)

    def _codes(self, table: Mapping[str, Any], key: str, where: tuple[str, int]) -> tuple[str, ...]:
        from t5x_harness.findings.silencing import not_codes
        from t5x_harness.rulebook.rules import all_codes

        codes = self._texts(table, key, where)
        if problem := not_codes(codes, all_codes):
            raise self._error(f"{key}: {problem}", (*where, key))
        return codes

    def _flag(self, table: Mapping[str, Any], key: str, where: tuple[str, int]) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            raise self._error(f"{key} has to be true or false, not {value!r}", (*where, key))
        return value

    def _one_of(self, values: Iterable[str], table: Mapping[str, Any], key: str, where: tuple[str, int]) -> str | None:
        value = self._text(table, key, where)
        if value is not None and value not in list(values):
            raise self._error(f"{key} {value!r} is none of {', '.join(values)}", (*where, key))
        return value

    def _seconds(self, table: Mapping[str, Any], key: str, where: tuple[str, int]) -> int | None:
        value = table.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise self._error(f"{key} has to be a whole number of seconds, at least 1", (*where, key))
        return value

    def _folder(self, root: Path, table: Mapping[str, Any], key: str, where: tuple[str, int]) -> str | None:
        """Returns a folder that has to be there."""
        value = self._text(table, key, where)
        if value is not None and not (root / value).is_dir():
            raise self._error(f"{key}: there is no folder {root / value}", (*where, key))
        return str(root / value) if value is not None else None

    def _samples(self, root: Path, table: Mapping[str, Any], where: tuple[str, int]) -> tuple[str, ...]:
        from t5x_harness.standins.rows import SampleError, declared

        value = table.get("samples", {})
        if not isinstance(value, dict):
            raise self._error("samples has to be a table of tasks and their rows", (*where, "samples"))
        found = []
        for name, rows in value.items():
            try:
                found.append(declared(name, rows, root).to_text())
            except (SampleError, TypeError) as error:  # TypeError: TOML has dates, JSON has not
                raise self._error(f"samples: {error}", (f"{_TABLE}.samples", 0, name)) from None
        return tuple(found)

    def _folders(self, root: Path, table: Mapping[str, Any], key: str, where: tuple[str, int]) -> tuple[str, ...]:
        return tuple(str(root / folder) for folder in self._texts(table, key, where))

    def _bindings(self, table: Mapping[str, Any], where: tuple[str, int]) -> tuple[str, ...]:
        value = table.get("bindings", [])
        if not isinstance(value, dict):
            return self._texts(table, "bindings", where)
        try:
            return tuple(f"{name} = {_gin_text(item)}" for name, item in value.items())
        except TypeError as error:
            raise self._error(f"bindings: {error}", (*where, "bindings")) from None

    def _error(self, message: str, place: tuple[str, int, str]) -> ProjectError:
        return ProjectError(f"{self._file}:{self._line(place)}: {message}")

    def _line(self, place: tuple[str, int, str]) -> int:
        """Returns the line of a key, of its table if the key has no line of its own, or 1."""
        table, index, key = place
        return next(
            (line for *at, line in self._places if at == [table, index, key]),
            next((line for *at, line in self._places if at == [table, index, ""]), 1),
        )


def _places(text: str) -> Iterator[tuple[str, int, str, int]]:
    """Yields table, its number among those of its name, key and line of each header and key on a line of its own."""
    table, seen = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\[?\s*([\w.\"' -]+?)\s*\]\]?\s*(?:#.*)?$", line):
            table = re.sub(r"[\s\"']", "", header[1])
            seen[table] = seen.get(table, -1) + 1
            yield table, seen[table], "", number
            if table.startswith(f"{_TABLE}."):
                yield _TABLE, 0, table.removeprefix(f"{_TABLE}."), number
        elif key := re.match(r"\s*([\w-]+|\"[^\"]*\"|'[^']*')\s*[=.]", line):
            yield table, seen.get(table, 0), key[1].strip("\"'"), number


def _gin_text(value: Any) -> str:
    """Returns a TOML value as gin text; a string that begins with ``%`` or ``@`` is a macro or a reference.

    Raises:
      TypeError: Gin has no such value.
    """
    if isinstance(value, str):
        return value if value[:1] in ("%", "@") else repr(value)
    if isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_gin_text(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_gin_text(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"{value} is not a Gin value: give a string, a number, a boolean, a list or a table")
