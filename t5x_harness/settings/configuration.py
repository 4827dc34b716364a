"""The settings of runs, from command line, variables, ini values and pyproject.toml, and the runs and files they name.

The options that a source sets are a layer. Layers are ordered, strongest first: a test's own arguments, the
command line, variables, ini values, a declared run, the project.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.settings.forms import Layer, SettingsError, all_codes, from_word, require_codes
from t5x_harness.settings.options import SessionOptions, option_of
from t5x_harness.settings.project import DeclaredRun, ProjectConfig
from t5x_harness.spec import RunSettings, RunSpec
from t5x_harness.spec.option import Option, OptionForm, options_of
from t5x_harness.system.misspelling import closest


def layer_of(
    options: Iterable[Option], given: Mapping[str, Any], name: Callable[[Option], str], here: Path, cwd: Path
) -> Layer:
    """Makes a layer from the arguments or ini values of this process.

    Args:
      options: the options that count.
      given: the values by field; None, an empty text and an empty list mean that nothing is set.
      name: returns the name of an option in the source, for messages.
      here: the folder from which relative paths of the source start.
      cwd: the folder in which runs work.

    Raises:
      SettingsError: a code of findings does not exist.
    """
    found: dict[str, Any] = {}
    for option in options:
        value = given.get(option.field)
        if option.form.is_separated:
            value = [part for text in value or () for part in map(str.strip, str(text).split(",")) if part]
        if value is None or value in ("", [], ()):
            continue
        if option.form is OptionForm.CODES:
            require_codes(value, name(option))
        elif option.form.is_path:
            value = (
                [_placed(option.form, path, here, cwd) for path in value]
                if option.form.is_list
                else _placed(option.form, value, here, cwd)
            )
        found[option.field] = tuple(value) if option.form.is_list else value
    return found


def layer_of_variables(options: Iterable[Option], environment: Mapping[str, str]) -> Layer:
    """Makes a layer from environment variables.

    Raises:
      SettingsError: a variable has a value that its option does not take.
    """
    return {
        option.field: from_word(option, option.variable, word)
        for option in options
        if option.variable and (word := environment.get(option.variable))
    }


def merged(options: Iterable[Option], layers: Iterable[Layer]) -> dict[str, Any]:
    """Returns the values that result from all layers, strongest first; fields that no layer sets are left out."""
    layers = tuple(layers)
    found: dict[str, Any] = {}
    for option in options:
        values = [value for layer in layers if (value := layer.get(option.field)) not in (None, "")]
        if values and isinstance(values[0], tuple) and option.joined:
            ordered = values if option.joined == "before" else values[::-1]
            found[option.field] = tuple(item for part in ordered for item in part)
        elif values:
            found[option.field] = values[0]
    return found


def _placed(form: OptionForm, path: str, here: Path, cwd: Path) -> str:
    """Returns a path that is valid in runs; addresses are unchanged, as are paths if runs start in the same folder."""
    if form in (OptionForm.ADDRESS, OptionForm.ADDRESSES) and ("://" in path or here == cwd):
        return path
    return os.path.join(here, path)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The settings for the runs of a command or of a session of pytest.

    Attributes:
      layers: the layers that are given here, strongest first; the project's table applies if they leave something open.
      project: the project.
      here: the folder from which relative paths that are given here start.
      cwd: the folder in which runs work.
      name: returns the name of an option as it is typed here, for messages.
    """

    layers: tuple[Layer, ...]
    project: ProjectConfig
    here: Path
    cwd: Path
    name: Callable[[Option], str]

    @functools.cached_property
    def session(self) -> SessionOptions:
        """The options for all runs together."""
        return SessionOptions(**merged(options_of(SessionOptions), (*self.layers, self.project.layer)))

    @functools.cached_property
    def settings(self) -> RunSettings:
        """The settings of a run that sets nothing itself."""
        return RunSettings(**merged(options_of(RunSettings), (*self.layers, self.project.layer)))

    @functools.cached_property
    def common(self) -> RunSpec:
        """A run without files that sets nothing itself."""
        return self.spec(())

    def given(self, field: str) -> Any:
        """Returns the value that is given here for an option, regardless of the project; None if none is."""
        return next((layer[field] for layer in self.layers if field in layer), None)

    def spec(self, gin_files: Sequence[str], *above: Layer, declared: DeclaredRun | None = None) -> RunSpec:
        """Builds a run of these files; it keeps no golden plan.

        Args:
          gin_files: the files, by paths as T5X takes them.
          *above: layers that precede those that are given here.
          declared: the run, if the project declares it: its own options precede those for all of the project's runs.
        """
        if above or declared is not None:
            settings, fields = self._merged(*above, *self.layers, declared.layer if declared else {})
        else:
            settings, fields = self._of_most_runs
        return RunSpec(tuple(gin_files), cwd=os.fspath(self.cwd), settings=settings, **fields)

    @functools.cached_property
    def _of_most_runs(self) -> tuple[RunSettings, dict[str, Any]]:
        return self._merged(*self.layers)

    def _merged(self, *given: Layer) -> tuple[RunSettings, dict[str, Any]]:
        """Returns the settings and the other fields of a run that result from layers and from the project's."""
        from t5x_harness.findings.silencing import codes_to_silence

        layers = (*given, self.project.layer)
        settings = RunSettings(**merged(options_of(RunSettings), layers))
        settings = dataclasses.replace(
            settings,
            ignore=codes_to_silence(settings.ignore, settings.select, all_codes),
            plan_golden=None,
            plan_golden_update=False,
        )
        return settings, merged(options_of(RunSpec), layers)

    def with_golden(self, spec: RunSpec, name: str) -> RunSpec:
        """Returns a run that keeps its golden plan where the settings say, if they name a place.

        Args:
          spec: the run.
          name: the name of the run.

        Raises:
          SettingsError: plans are to be written, but no place is set.
        """
        target, update = self.settings.plan_golden, self.settings.plan_golden_update
        if target is None:
            if update:
                wanted, missing = self.typed("plan_golden_update"), self.typed("plan_golden")
                raise SettingsError(f"{wanted}: name the file or folder, too: {missing}=PATH")
            return spec
        file = os.path.abspath(golden_file(target, name))
        return spec.with_settings(plan_golden=file, plan_golden_update=update)

    def check_goldens(self, specs: Sequence[RunSpec]) -> None:
        """Checks that each run keeps its plan in a separate file.

        Raises:
          SettingsError: two runs share a file.
        """
        files: dict[str, RunSpec] = {}
        for spec in specs:
            file = spec.settings.plan_golden
            if file is not None and (other := files.setdefault(file, spec)) != spec:
                raise SettingsError(
                    f"{self.typed('plan_golden')}: {file} would be the golden plan of {other.gin_files[-1]} and of "
                    f"{spec.gin_files[-1]}; for several runs name a folder, and give each run its own name"
                )

    def typed(self, field: str) -> str:
        """Returns the name of an option as it is typed here."""
        return self.name(option_of(field))


def golden_file(target: str, name: str) -> str:
    """Returns the path of a run's golden plan: the named file, if it has a suffix, or a file in the named folder."""
    path = Path(target)
    is_folder = path.is_dir() or target.endswith("/") or not (path.suffix or path.is_file())
    return os.fspath(path / f"{name}.plan" if is_folder else path)


_WILDCARD = re.compile(r"[*?\[]")


def is_pattern(name: str) -> bool:
    """Returns whether a name is a pattern, which may also match files that are only meant to be included."""
    return _WILDCARD.search(name) is not None


def matches(root: Path, name: str) -> list[Path]:
    """Returns the files that a name or a pattern matches, sorted."""
    return sorted(path for path in root.glob(name) if path.is_file())


def files_of(root: Path, names: Iterable[str]) -> list[Path]:
    """Returns the files that names and patterns match, each once, sorted."""
    return sorted({path for name in names for path in matches(root, name)})


def require_matches(root: Path, names: Sequence[str], ini_names: Sequence[str] = ()) -> None:
    """Checks that each name and each pattern matches a file.

    A name that matches nothing would silently leave a run out, and the session would pass without it.

    Args:
      root: the folder from which they start, with the project's pyproject.toml.
      names: the names in pyproject.toml.
      ini_names: the names in the ini value ``t5x_gin_files``.

    Raises:
      SettingsError: one matches nothing; the message names its place and the file that may be meant.
    """
    for name, in_ini in [*((name, False) for name in names), *((name, True) for name in ini_names)]:
        if not matches(root, name):
            where = "ini value t5x_gin_files" if in_ini else f"{_place_of(root, name)}: gin_files"
            what = f"{name!r} matches no file below {root}" if is_pattern(name) else f"there is no file {name}"
            hint = f"; did you mean {near}?" if (near := _near(root, name)) else ""
            raise SettingsError(f"{where}: {what}{hint}")


def _place_of(root: Path, name: str) -> str:
    """Returns the line of pyproject.toml that names a file, or a pattern, as file:line."""
    file = root / "pyproject.toml"
    lines = file.read_text(encoding="utf-8").splitlines()
    key = next((n for n, line in enumerate(lines) if re.match(r"\s*gin_files\s*=", line)), 0)
    quoted = (f'"{name}"', f"'{name}'")
    found = (n for n, line in enumerate(lines[key:], start=key) if any(each in line for each in quoted))
    return f"{file}:{next(found, key) + 1}"


def _near(root: Path, name: str) -> str | None:
    """Returns the name with its first missing part replaced by an existing one that is spelled similarly."""
    parts = Path(name).parts
    folder = root
    for index, part in enumerate(parts):
        if is_pattern(part):
            below = next((path for path in sorted(folder.rglob("*.gin")) if path.is_file()), None)
            return f"{below.parent.relative_to(root).as_posix()}/*.gin".removeprefix("./") if below else None
        if not (folder / part).exists():
            there = [path.name for path in folder.iterdir() if path.is_dir() or index == len(parts) - 1]
            near = closest(part, there)
            return Path(*parts[:index], near, *parts[index + 1 :]).as_posix() if near else None
        folder /= part
    return None
