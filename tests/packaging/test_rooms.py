"""The folders of the package are rooms in an order: a module imports only from its own room and from rooms below it.

All imports count, including those inside functions and for types, and so do strings that name a module.
docs/architecture.md draws the same order. The package's ``__init__`` is a room like any other: it contains the public
names of all rooms.
"""

from collections.abc import Iterator
from pathlib import Path

from structure import PACKAGE, arrows_of, circle, modules_of, names_of_modules

FILES = {"__init__", "__main__", "preemption", "variables", "version"}
ROOMS = (
    *("__init__", "__main__", "plugin", "fixtures", "commands", "auxiliary", "runs", "pods", "resume", "execute"),
    *("conversion", "caching", "settings", "rulebook", "aot", "plan", "resolve"),
    *("promotion", "standins", "vertex", "lint", "report", "findings", "workers", "doctor", "bootstrap", "google"),
    *("timings", "gin", "upstream", "runtime", "slices", "sample_tasks", "symptoms", "buckets", "spec", "system"),
    *("variables", "version", "preemption"),
)
"""The rooms from top to bottom."""

LEVEL = {room: index for index, room in enumerate(ROOMS)}


def is_above(name: str, module: str) -> bool:
    return LEVEL[name.split(".")[0]] < LEVEL[module.split(".")[0]]


def test_no_module_stands_beside_the_rooms(repository: Path) -> None:
    assert {path.stem for path in (repository / PACKAGE).glob("*.py")} == FILES
    assert {module.room for module in modules_of(repository).values()} == set(ROOMS)


def arrows_up(repository: Path) -> Iterator[str]:
    for module, imported in arrows_of(repository).items():
        yield from (f"{module}:{line} imports {other}" for other, line in imported.items() if is_above(other, module))


def test_rooms_import_only_rooms_below_them(repository: Path) -> None:
    assert list(arrows_up(repository)) == []


def test_no_string_names_a_module_of_a_room_above(repository: Path) -> None:
    modules = modules_of(repository)
    found = [
        f"{module.name}:{line} names {other}"
        for module in modules.values()
        for line, other in names_of_modules(module, modules)
        if is_above(other, module.name)
    ]
    assert found == []


def test_no_modules_import_each_other_in_a_circle(repository: Path) -> None:
    assert circle(arrows_of(repository)) == []
