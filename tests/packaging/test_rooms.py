"""The folders of the package are rooms in an order: a module imports from its own room and from those below it.

All imports count, those inside functions and for types too. docs/architecture.md draws the same order.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "t5x_harness"
MAPPED = ("plugin", "fixtures", "sample_tasks")
FILES = {"__init__", "__main__", "variables", "version"}
ROOMS = (
    *("__main__", "plugin", "fixtures", "commands", "auxiliary", "runs", "execute", "conversion"),
    *("caching", "settings", "rulebook", "aot", "plan", "resolve"),
    *("promotion", "standins", "vertex", "lint", "report", "findings", "workers", "doctor", "bootstrap", "google"),
    *("gin", "upstream", "runtime", "slices", "sample_tasks", "buckets", "spec", "system", "variables"),
    *("version", "__init__"),
)
"""From top to bottom."""


def modules_in(repository: Path) -> dict[str, Path]:
    """Returns the files of the package by module, as parts below it; the embedded T5X is a package of its own."""
    found = {}
    for top in (PACKAGE, *MAPPED):
        for path in (repository / top).rglob("*.py"):
            parts = path.relative_to(repository).with_suffix("").parts[top == PACKAGE :]
            if parts[0] != "embedded" and "sample_project" not in parts:
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports_of(module: str, path: Path, modules: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """Yields the package's own modules that a module imports, with the line."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*([PACKAGE] if node.level else []), *above, *filter(None, [node.module])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            inside = name.removeprefix(PACKAGE).removeprefix(".") if name.split(".")[0] == PACKAGE else None
            if inside is not None:
                known = inside if inside in modules else inside.rpartition(".")[0]
                yield known or "__init__", node.lineno


@pytest.fixture(scope="module")
def arrows(repository: Path) -> dict[str, dict[str, int]]:
    """Which module imports which, and in what line.

    The package's own ``__init__`` lists the public names of other rooms, for types only; every room may import it.
    """
    modules = modules_in(repository)
    return {
        module: dict(imports_of(module, path, modules)) if module != "__init__" else {}
        for module, path in modules.items()
    }


def room_of(module: str) -> str:
    return module.split(".")[0]


def test_no_module_stands_beside_the_rooms(repository: Path) -> None:
    assert {path.stem for path in (repository / PACKAGE).glob("*.py")} == FILES
    assert {room_of(module) for module in modules_in(repository)} == set(ROOMS)


def test_rooms_import_only_rooms_below_them(arrows: dict[str, dict[str, int]]) -> None:
    level = {room: index for index, room in enumerate(ROOMS)}
    upward = [
        f"{module}:{line} imports {other}"
        for module, imported in arrows.items()
        for other, line in imported.items()
        if level[room_of(module)] > level[room_of(other)]
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle(arrows: dict[str, dict[str, int]]) -> None:
    graph = {module: {other for other in imported if other != module} for module, imported in arrows.items()}
    graphlib.TopologicalSorter(graph).prepare()
