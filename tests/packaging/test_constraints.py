"""The versions in ``constraints/`` are those that the bounds of the project allow, and those of the image."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from t5x_harness.system import tested_versions

PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("t5x", "google", "vertex", "s3", "xdist")


def lines_of(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def pins_of(path: Path) -> dict[str, str]:
    return dict(line.split("==") for line in lines_of(path))


@pytest.mark.parametrize("python", PYTHONS)
def test_each_bound_of_the_project_and_each_import_of_t5x_has_a_version(repository: Path, python: str) -> None:
    pins = pins_of(repository / "constraints" / f"py{python}.txt")
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    texts = [*project["project"]["dependencies"], *(text for extra in EXTRAS for text in extras[extra])]
    texts += [text for text in project["dependency-groups"]["tests"] if isinstance(text, str)]
    texts += lines_of(repository / "constraints" / "t5x.txt")
    requirements = [r for r in map(Requirement, texts) if r.name != "t5x-harness"]
    wrong = [str(r) for r in requirements if not r.specifier.contains(pins.get(canonicalize_name(r.name), "0"))]
    assert [text for text in wrong if "dev" not in text] == [], "run: tox run -e constraints"


def test_the_files_are_those_of_the_supported_pythons(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: Python :: \d\.\d+$", c)]
    files = {path.stem for path in (repository / "constraints").glob("py*.txt")}
    assert files == {f"py{python}" for python in PYTHONS} == {f"py{python}" for python in named}


def test_the_image_has_the_same_versions(repository: Path) -> None:
    """Both are the versions that T5X's behavior was recorded with; only libtpu is the image's own."""
    image = pins_of(repository / "docker" / "requirements.txt")
    pins = pins_of(repository / "constraints" / "py3.11.txt")
    assert {name: version for name, version in image.items() if pins.get(name) != version}.keys() == {"libtpu"}


def test_the_command_names_files_that_are_there(repository: Path) -> None:
    words = tested_versions.install_command().split()
    named = [Path(word) for word in words if word.endswith(".txt")]
    assert [path.name for path in named] == [tested_versions.constraints_file().name, "t5x.txt"]
    for path in named:  # in an installed package, they are copies
        assert path.read_text() == (repository / "constraints" / path.name).read_text()
    assert tested_versions.tested_versions()["jax"] == pins_of(named[0])["jax"]
