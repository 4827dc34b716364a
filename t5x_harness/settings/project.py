"""``[tool.t5x_harness]`` of a pyproject.toml: which gin files are runs, and the settings of these runs.

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

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.promotion.marker import ResourcesError, TpuResources
from t5x_harness.settings.forms import Layer, SettingsError, from_toml, require_codes
from t5x_harness.settings.options import JOBS, RUNS
from t5x_harness.spec import RunSpec
from t5x_harness.spec.option import Option, OptionForm, options_of

_TABLE = "tool.t5x_harness"
_OF_RUN = {option.field: option for option in options_of(RunSpec)}
_OF_DECLARED = ("bindings", "mode", "slice", "search_paths")
_NAME = Option(field="name", help="")
_FILES = Option(field="gin_files", help="", form=OptionForm.TEXTS)


class ProjectError(SettingsError):
    """The table has a mistake; the message begins with its file and line."""


@dataclasses.dataclass(frozen=True)
class DeclaredRun:
    """One ``[[tool.t5x_harness.runs]]``: several gin files and bindings that form one run.

    Attributes:
      name: the run's name in reports.
      gin_files: the paths as T5X takes them, in order.
      layer: the options that it sets.
      line: the line at which the run is declared.
    """

    name: str
    gin_files: tuple[str, ...]
    layer: Layer
    line: int


@dataclasses.dataclass(frozen=True)
class ProjectConfig:
    """The table of one pyproject.toml.

    Attributes:
      root: the folder of the pyproject.toml, from which relative paths start.
      layer: the options of runs that the table sets.
      runs: the declared runs.
      vertex: the target of jobs, as far as the table sets it, by the names of
        :class:`~t5x_harness.vertex.target.VertexTarget`.
      tpu: the resources that promoted tests request by default, by the names of
        :class:`~t5x_harness.promotion.marker.TpuResources`; if it is set, configs are also promoted.
    """

    root: Path
    layer: Layer = dataclasses.field(default_factory=dict)
    runs: tuple[DeclaredRun, ...] = ()
    vertex: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tpu: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def gin_files(self) -> tuple[str, ...]:
        """The names and globs of the files that are runs."""
        return tuple(self.layer.get("gin_files", ()))

    @property
    def python_path(self) -> tuple[str, ...]:
        """The folders with the configs' own modules, absolute."""
        return tuple(self.layer.get("python_path", ()))

    @property
    def samples(self) -> tuple[str, ...]:
        """Rows that replace data, in the form that :class:`~t5x_harness.spec.RunSettings` takes."""
        return tuple(self.layer.get("samples", ()))


def find_project(folder: Path) -> ProjectConfig:
    """Loads the nearest pyproject.toml, in ``folder`` or above it.

    Raises:
      ProjectError: it has a mistake.
    """
    return load_project(project_folder(folder))


def project_folder(folder: Path) -> Path:
    """Returns the nearest folder with a pyproject.toml, ``folder`` or one above it; ``folder`` itself without one."""
    start = folder.absolute()
    return next((each for each in (start, *start.parents) if (each / "pyproject.toml").is_file()), start)


def load_project(folder: Path) -> ProjectConfig:
    """Loads the pyproject.toml of one folder; the result is empty if the file or its table is missing.

    Raises:
      ProjectError: it is not TOML, or the table has a mistake.
    """
    file = folder / "pyproject.toml"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ProjectConfig(root=folder)
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{file}: cannot be read: {error}") from None
    import tomllib  # imported here, as every pytest with the plugin imports this module

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProjectError(f"{file}: not valid TOML: {error}") from None
    tool = document.get("tool", {})
    table = tool.get("t5x_harness", {}) if isinstance(tool, dict) else {}
    return _ProjectReader(file, text).project(table)


@dataclasses.dataclass(frozen=True)
class _Table:
    """A table of the file, as messages name it: ``[tool.t5x_harness]``, or a part of it.

    Attributes:
      name: its name in the file.
      number: its number among the tables with this name, counted from 0.
    """

    name: str = _TABLE
    number: int = 0


class _ProjectReader:
    """Checks the table; every mistake is reported with its line."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._root = file.parent
        self._lines = tuple(_lines_of_keys(text))

    def project(self, table: Any) -> ProjectConfig:
        top = _Table()
        if not isinstance(table, dict):
            raise self._error("[tool.t5x_harness] has to be a table", top)
        options = {option.key: option for option in RUNS if option.key}
        self._require_known(table, [*options, "vertex", "tpu"], top)
        tables = {"samples": self._samples, "prices": self._prices, "runs": self._runs}
        layer: dict[str, Any] = {
            options[key].field: tables[key](table) if key in tables else self._value(options[key], value, key, top)
            for key, value in table.items()
            if key in options
        }
        return ProjectConfig(
            self._root,
            layer,
            layer.get("runs", ()),
            vertex=self._vertex(self._part(table, "vertex", "a table")),
            tpu=self._tpu(self._part(table, "tpu", "a table")),
        )

    def _value(self, option: Option, value: Any, key: str, where: _Table) -> Any:
        try:
            if option.form is OptionForm.BINDINGS and isinstance(value, dict):
                return tuple(f"{name} = {_gin_text(item)}" for name, item in value.items())
            read = from_toml(option, key, value, self._root)
            if option.form is OptionForm.CODES:
                require_codes(read, key)
        except TypeError as error:
            raise self._error(f"{key}: {error}", where, key) from None
        except ValueError as error:
            raise self._error(str(error), where, key) from None
        return read

    def _runs(self, table: Mapping[str, Any]) -> tuple[DeclaredRun, ...]:
        runs = table["runs"]
        if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
            message = f"runs are declared as [[tool.t5x_harness.runs]], not as {runs!r}"
            raise self._error(message, _Table(), "runs")
        declared = [self._run(run, _Table(f"{_TABLE}.runs", index)) for index, run in enumerate(runs)]
        names = [run.name for run in declared]
        for index, name in enumerate(names):
            if name in names[:index]:
                where = _Table(f"{_TABLE}.runs", index)
                raise self._error(f"two runs are called {name!r}: give each its own name", where, "name")
        return tuple(declared)

    def _run(self, run: Mapping[str, Any], where: _Table) -> DeclaredRun:
        self._require_known(run, ["name", "gin_files", *_OF_DECLARED], where)
        name = self._value(_NAME, run.get("name", ""), "name", where)
        gin_files = self._value(_FILES, run.get("gin_files", []), "gin_files", where)
        if not name or not gin_files:
            raise self._error("a run needs a name and gin_files", where)
        layer = {key: self._value(_OF_RUN[key], run[key], key, where) for key in _OF_DECLARED if key in run}
        return DeclaredRun(name, gin_files, layer, self._line(where))

    def _vertex(self, table: Mapping[str, Any]) -> Mapping[str, str]:
        where = _Table(f"{_TABLE}.vertex")
        options = {option.field: option for option in JOBS if option.key.startswith("vertex.")}
        self._require_known(table, [*options], where)
        return {key: self._value(options[key], value, key, where) for key, value in table.items()}

    def _tpu(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            TpuResources.of(table)
        except ResourcesError as error:
            key = next((key for key in table if key in str(error)), "")
            raise self._error(f"tpu: {error}", _Table(f"{_TABLE}.tpu"), key) from None
        return dict(table)

    def _prices(self, table: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
        where, prices = _Table(f"{_TABLE}.prices"), self._part(table, "prices", "a table of TPU generations")
        if not prices:
            return ()
        from t5x_harness.slices.slice import GENERATIONS

        self._require_known(prices, [generation.name for generation in GENERATIONS], where)
        for name, price in prices.items():
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < math.inf:
                raise self._error(
                    f"{name} has to be a price in US dollars for an hour of one chip, not {price!r}", where, name
                )
        return tuple(sorted((name, float(price)) for name, price in prices.items()))

    def _samples(self, table: Mapping[str, Any]) -> tuple[str, ...]:
        from t5x_harness.standins.rows import SampleError, declared

        found = []
        for name, rows in self._part(table, "samples", "a table of tasks and their rows").items():
            try:
                found.append(declared(name, rows, self._root).to_text())
            except (SampleError, TypeError) as error:  # TypeError: TOML has dates, but JSON does not
                raise self._error(f"samples: {error}", _Table(f"{_TABLE}.samples"), name) from None
        return tuple(found)

    def _part(self, table: Mapping[str, Any], key: str, what: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise self._error(f"{key} has to be {what}, not {value!r}", _Table(), key)
        return value

    def _require_known(self, table: Mapping[str, Any], keys: Sequence[str], where: _Table) -> None:
        for key in table:
            if key not in keys:
                import difflib

                near = difflib.get_close_matches(key, keys, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(keys)}"
                raise self._error(f"unknown key {key!r}: {hint}", where, key)

    def _error(self, message: str, where: _Table, key: str = "") -> ProjectError:
        return ProjectError(f"{self._file}:{self._line(where, key)}: {message}")

    def _line(self, where: _Table, key: str = "") -> int:
        """Returns the line of a key, or that of its table if the key has no separate line, or 1."""
        lines = {(table, name): line for table, name, line in reversed(self._lines)}
        return lines.get((where, key)) or lines.get((where, ""), 1)


def _lines_of_keys(text: str) -> Iterator[tuple[_Table, str, int]]:
    """Yields the table, key and line of each key on a separate line, and of each header, whose key is empty."""
    table, seen = _Table(""), dict[str, int]()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\[?\s*([\w.\"' -]+?)\s*\]\]?\s*(?:#.*)?$", line):
            name = re.sub(r"[\s\"']", "", header[1])
            seen[name] = seen.get(name, -1) + 1
            table = _Table(name, seen[name])
            yield table, "", number
            if name.startswith(f"{_TABLE}."):
                yield _Table(), name.removeprefix(f"{_TABLE}."), number
        elif key := re.match(r"\s*([\w-]+|\"[^\"]*\"|'[^']*')\s*[=.]", line):
            yield table, key[1].strip("\"'"), number


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
