"""Private names that a library no longer has are said before a run stumbles over them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from t5x_harness.doctor import Environment, Installed
from t5x_harness.doctor.private_names import private_names
from t5x_harness.runtime.choice import Runtime
from t5x_harness.upstream.names import LIBRARIES

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = Runtime("embedded", "0.1.0", "/lib/t5x_harness/embedded/t5x", "no T5X is installed")


def test_a_name_that_is_gone_is_said_with_library_and_version(tmp_path: Path) -> None:
    (tmp_path / "gin").mkdir()
    file = tmp_path / "gin" / "config.py"
    environment = Environment((Installed("gin-config", "0.5.0", str(tmp_path)),), RUNTIME)
    file.write_text("_CONFIG = {}\n_FILE_READERS = []\n")
    found = private_names.run(environment)
    assert (found.summary, found.findings) == ("2 of 2 are there: gin-config 0.5.0", ())
    file.write_text("_CONFIGS = {}\n_FILE_READERS = []\n")
    found = private_names.run(environment)
    assert (found.status, found.summary) == ("warning", "1 of 2 are there: gin-config 0.5.0")
    [finding] = found.findings
    assert finding.message == (
        "gin-config 0.5.0 has no _CONFIG of gin/config.py: what the harness does with it may fail, or take longer"
    )
    assert finding.fix == "python -m pip install 'gin-config<0.5.0'"


def test_a_library_that_is_not_installed_or_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    assert private_names.run(Environment((), RUNTIME)).summary == "no library with any is there"
    unread = Environment((Installed("gin-config", "0.5.0", str(tmp_path)),), RUNTIME)
    assert private_names.run(unread).summary == "no library with any is there"


def names_used_in(file: Path) -> set[str]:
    """The private names in a file's code, those that it defines and those of itself left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    used, own = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                own.add(name)
            case ast.FunctionDef(name=name) if name != "_split_scope":
                own.add(name)
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) | ast.keyword(arg=str(name)):
                used.add(name)
    return {name for name in used - own if re.fullmatch(r"_(?!_)\w+", name)} - {"_exit", "_getframe", "_Base"}


@pytest.mark.parametrize("code", sorted({library.code for library in LIBRARIES}))
def test_the_table_has_every_private_name_that_the_code_uses(code: str) -> None:
    listed = {name for lib in LIBRARIES if lib.code == code for names in lib.names.values() for name in names.split()}
    used = names_used_in(ROOT / code)
    assert {name for name in listed if name.startswith("_")} == used


def test_every_file_of_upstream_is_in_the_table() -> None:
    files = {p.name for p in (ROOT / "t5x_harness" / "upstream").glob("*.py") if names_used_in(p)}
    assert files == {Path(lib.code).name for lib in LIBRARIES if "upstream" in lib.code} | {"cpython.py", "names.py"}
