"""The gin files that a project names as its runs, by names and patterns, each of which has to match a file.

A name that matches nothing would silently leave a run out, and the session would pass without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from t5x_harness.settings.forms import SettingsError
from t5x_harness.system.misspelling import closest

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

    Args:
      root: the folder from which they start, with the project's pyproject.toml.
      names: the names in pyproject.toml.
      ini_names: the names in the ini value ``t5x_gin_files``.

    Raises:
      SettingsError: one matches nothing; the message names its place and the file that may be meant.
    """
    for name, in_ini in [*((name, False) for name in names), *((name, True) for name in ini_names)]:
        if not matches(root, name):
            where = "ini value t5x_gin_files" if in_ini else f"{place_of(root, name)}: gin_files"
            raise SettingsError(f"{where}: {_what_is_wrong(root, name)}")


def place_of(root: Path, name: str) -> str:
    """Returns the line of pyproject.toml that names a file, or a pattern, as file:line."""
    file = root / "pyproject.toml"
    lines = file.read_text(encoding="utf-8").splitlines()
    key = next((n for n, line in enumerate(lines) if re.match(r"\s*gin_files\s*=", line)), 0)
    quoted = (f'"{name}"', f"'{name}'")
    found = (n for n, line in enumerate(lines[key:], start=key) if any(each in line for each in quoted))
    return f"{file}:{next(found, key) + 1}"


def _what_is_wrong(root: Path, name: str) -> str:
    near = _near(root, name)
    hint = f"; did you mean {near}?" if near else ""
    if is_pattern(name):
        return f"{name!r} matches no file below {root}{hint}"
    return f"there is no file {name}{hint}"


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
