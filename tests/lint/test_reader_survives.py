"""No file can crash or hang the reader, and it reads what Gin reads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gin
import pytest
from gin import config_parser
from hypothesis import given, settings
from hypothesis import strategies as st
from linting import RUN, T5X, Folder

from t5x_harness.gin import parsing
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.reader import read
from t5x_harness.gin.values import Macro
from t5x_harness.lint import lint
from t5x_harness.lint.edits import statement_at
from t5x_harness.spec import Location, RunSpec

_WORDS = st.sampled_from(
    ["A", "B_2", "train/utils.X", "include", "import", "from", "as", "'x.gin'", "run.gin", "=", ":", "\n", "\n  ", " ",
     "@", "%", "%A", "@a/b.c()", "(", ")", "[", "]", "{", "}", ",", "-", "1", "1e6", "'", '"""', "#", "\\", "\t", "\0",
     "gin.REQUIRED", "__gin__", "dynamic_registration", "__main__", "t5x", "utils", "$", "é", "\r", "0x", "'run.gin'"]
)  # fmt: skip
_TEXTS = st.lists(_WORDS, max_size=40).map(" ".join) | st.lists(_WORDS, max_size=40).map("".join) | st.text(max_size=80)


@settings(max_examples=400, deadline=None)
@given(_TEXTS)
def test_any_text_is_read_or_complained_about(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.gin").write_text(text, encoding="utf-8", errors="replace")
        lint(RunSpec(("run.gin",), (text,), cwd=folder), t5x_parent=T5X)


_LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
_NAMES = st.from_regex(r"[A-Z][A-Z_]{0,5}", fullmatch=True)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_NAMES, _LITERALS), min_size=1, max_size=6))
def test_macros_come_to_what_gin_comes_to(statements: list[tuple[str, Any]]) -> None:
    text = "".join(f"{name} = {value!r}\n" for name, value in statements)
    parsed, problems = parsing.parse(text)
    assert problems == ()
    mine = {s.selector: s.value for s in parsed if isinstance(s, config_parser.BindingStatement)}
    gin.clear_config()
    gin.parse_config(text)
    assert mine == {name: gin.query_parameter(f"{name}/gin.macro.value") for name in mine}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(_NAMES, st.integers() | _NAMES.map(Macro)), max_size=8))
def test_following_macros_always_ends(statements: list[tuple[str, Any]]) -> None:
    bindings = tuple(f"{name} = {value}" for name, value in statements)
    program = read(RunSpec((), bindings), t5x_parent=None)
    for macro in program.macros.values():
        program.resolve(macro)
    assert program.read_macros <= set()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\xff\xfe\x00", "cannot read run.gin: it is not UTF-8 text"),
        (b"A = 1\n" * 3 + b"\x00", None),
        (b"A = " + b"(" * 2000, "nested too deeply"),
        (b"A = {[]: 1}\n", "unhashable type: 'list'"),
        (b"A = 1\r\nB = x\r\n", "not a Python literal"),
    ],
)
def test_odd_files_are_complained_about(folder: Folder, content: bytes, complaint: str | None) -> None:
    (folder.path / "run.gin").write_bytes(content)
    result = lint(RunSpec(("run.gin",), cwd=str(folder.path)), t5x_parent=T5X)
    assert result.errors
    assert complaint is None or any(complaint in f.message for f in result.findings), result.findings


def test_a_folder_or_a_name_too_long_is_no_file(folder: Folder) -> None:
    (folder.path / "folder.gin").mkdir()
    found = folder.findings(f"include 'folder.gin'\ninclude '{'x' * 5000}.gin'\ninclude 'a\\0b'\n")
    assert [f.code for f in found if f.code == "GIN16"] == ["GIN16"] * 3


def test_a_file_that_includes_itself_many_times_ends(folder: Folder) -> None:
    folder.write({f"f{i}.gin": f"include 'f{i + 1}.gin'\n" * 3 for i in range(40)} | {"f40.gin": ""})
    assert any(f.code == "GIN32" for f in folder.findings("include 'f0.gin'\n"))


def test_reading_imports_nothing_that_a_config_names(folder: Folder) -> None:
    folder.write(
        {"danger/__init__.py": "raise SystemExit('imported')\n", "danger/tasks.py": "raise SystemExit('imported')\n"}
    )
    gin_text = (
        "from __gin__ import dynamic_registration\nimport danger.tasks\nfrom danger import tasks as t\nt.thing.x = 1\n"
    )
    assert not any(f.code == "GIN15" for f in folder.findings(gin_text))


def test_a_huge_file_is_not_read(folder: Folder) -> None:
    folder.write({"data.gin": "A = 1\n" * 200_000})
    (finding,) = [f for f in folder.findings(RUN + "include 'data.gin'\n") if f.code == "GIN16"]
    assert finding.message == "cannot read data.gin: it has 1.2 MB, and lint reads gin files of up to 1"
    assert finding.location == Location("run.gin", 10)


def test_each_statement_of_a_long_file_is_looked_at_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's lines are cut once for all its statements: otherwise the time would grow with the square of its size."""
    lookups: list[str] = []
    original = GinProgram.is_installed
    monkeypatch.setattr(GinProgram, "is_installed", lambda self, file: lookups.append(file) or original(self, file))
    program = folder.read(RUN + "".join(f"s{i}/utils.DatasetConfig.seed = {i}  # {i}\n" for i in range(500)))
    for binding in program.bindings:
        statement_at(program, binding.location)
    assert len(lookups) == len(program.texts)


@pytest.mark.parametrize("name", ["secrets.env", "link.gin"])
def test_files_that_are_not_the_projects_are_not_quoted(folder: Folder, name: str, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("machine")
    (outside / "secrets.env").write_text("root:x:0:0\nAPI_KEY = 'abc123'\n")
    (folder.path / "link.gin").symlink_to(outside / "secrets.env")
    target = name if name == "link.gin" else str(outside / name)
    result = folder.lint(RUN + f"include '{target}'\n")
    (finding,) = [f for f in result.findings if f.code == "GIN16"]
    assert finding.message.endswith("it lies outside of the project and is not a .gin file, so lint does not read it")
    assert "abc123" not in str(result)
    assert "root:x" not in str(result)


def test_gin_files_anywhere_and_any_file_of_the_project_are_read(folder: Folder, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("machine")
    (outside / "more.gin").write_text("BATCH_SIZE = 8\n")
    folder.write({"more.config": "BATCH_SIZE = 8\n"})
    for target in (outside / "more.gin", "more.config"):
        assert folder.findings(RUN + f"include '{target}'\n") == []
