"""The wheel is complete, although its packages are listed by hand because top-level folders are mapped into one."""

import importlib.metadata
import itertools
import tomllib
from pathlib import Path

from structure import MAPPED


def packages_on_disk(root: Path) -> set[str]:
    found = set()
    for top in ("t5x_harness", *MAPPED):
        for init in (root / top).rglob("__init__.py"):
            folder = init.parent.relative_to(root)
            if len(folder.parts) > 1 and not (init.parent.parent / "__init__.py").exists():
                continue  # part of a sample that is a separate project
            found.add(".".join(folder.parts if top == "t5x_harness" else ("t5x_harness", *folder.parts)))
    return found | {"t5x_harness.constraints"}  # data alone


def test_every_package_is_listed(repository: Path) -> None:
    listed = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert listed == sorted(listed)
    assert set(listed) == packages_on_disk(repository)


def test_the_entry_points_are_those_that_pytest_and_the_shell_look_for() -> None:
    entry_points = importlib.metadata.distribution("t5x-harness").entry_points
    assert {(e.group, e.name, e.value) for e in entry_points} == {
        ("pytest11", "t5x_harness", "t5x_harness.plugin"),
        ("console_scripts", "t5x-harness", "t5x_harness.commands.main:main"),
    }


def test_licence_and_typing_are_declared() -> None:
    metadata = importlib.metadata.metadata("t5x-harness")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in metadata.get_all("Classifier")


def test_no_two_files_of_the_tests_have_one_name(repository: Path) -> None:
    """Test folders are not packages. Files are imported by their bare names, so the second would import the first.

    The projects in folders of ``tests/reports`` are copied elsewhere before anything is imported from them.
    """
    tests = repository / "tests"
    files = set(tests.rglob("*.py")) - set((tests / "reports").glob("*/**/*.py"))
    names = sorted(path.name for path in files if path.name != "conftest.py")
    assert [name for name, following in itertools.pairwise(names) if name == following] == []
