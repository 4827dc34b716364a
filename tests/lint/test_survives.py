"""With any content of a gin file, and in any place, the reader and the command finish and report one clear thing."""

import contextlib
import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linting import RUN, T5X, Folder, lint

from t5x_harness.commands.main import main
from t5x_harness.gin import files, parsing
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.reader import read
from t5x_harness.gin.values import Macro
from t5x_harness.lint.edits import statement_at
from t5x_harness.spec import Outcome, RunSettings, RunSpec


def _command(folder: Path, *arguments: str) -> tuple[int, str]:
    """Returns the exit status of ``t5x-harness lint`` in a folder, and everything that it prints."""
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(["lint", *arguments])
    return status, out.getvalue()


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.integers(0, len(RUN)).map(lambda end: RUN.encode()[:end]))
def test_any_bytes_are_read_or_complained_about(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "run.gin").write_bytes(content)
        status, printed = _command(Path(name), "run.gin")
    assert status in (0, 1, 2)
    assert printed
    assert "Traceback" not in printed


_INCLUDES = st.lists(
    st.sampled_from(
        ["a.gin", "b.gin", "sub/c.gin", "./a.gin", "../x/a.gin", "sub/../b.gin", "loop/a.gin", "link.gin", "dir.gin",
         "gone.gin", "sub", "", ".", "/", "gs://bucket/a.gin", "gs://", "/gcs/bucket/a.gin", "/gcs", "a\\0b", "é.gin",
         "t5x/configs/runs/pretrain.gin", "os/path.gin", "json/a.gin", "a b.gin", "sub.c.gin", "x" * 300 + "/y.gin"]
    ),
    max_size=4,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(("run.gin", "a.gin", "b.gin", "sub/c.gin"), _INCLUDES)), st.booleans())
def test_any_includes_are_followed_to_an_end(includes: dict[str, list[str]], is_package: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "x")
        (folder / "sub").mkdir(parents=True)
        (folder / "dir.gin").mkdir()
        (folder / "loop").symlink_to(".")
        (folder / "link.gin").symlink_to("link.gin")
        if is_package:
            (folder / "sub" / "__init__.py").touch()
        for file, targets in includes.items():
            (folder / file).write_text("".join(f"include '{target}'\n" for target in targets), encoding="utf-8")
        program = read(RunSpec(("run.gin",), search_paths=("sub", "gone"), cwd=str(folder)), t5x_parent=T5X)
        assert program.complete or program.problems
        lint(RunSpec(("run.gin",), search_paths=("sub", "gone"), cwd=str(folder)))


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _link(name: str, target: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).symlink_to(target)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (_write("run.gin", b"\xff\xfe"), "cannot read run.gin: it is not UTF-8 text"),
        (_write("run.gin", "\ufeffA = 1\n".encode()), "cannot parse"),
        (_write("run.gin", b"A = 1\r\nB = 'x\r\n"), "run.gin:2"),
        (_write("run.gin", b"A = '" + b"x" * 900_000), "cannot parse"),
        (
            _write("run.gin", b"A = '" + b"x" * 3_000_000),
            "cannot read run.gin: it has 3.0 MB, and lint reads gin files",
        ),
        (_write("run.gin", b"A = [" + b"1, " * 100_000 + b"x]\n"), "cannot parse"),
        (_write("run.gin", b"A = 1\0\n"), "run.gin:1"),
        (_write("run.gin", b"A = " + b"(" * 2000), "nested too deeply"),
        (_write("run.gin", b"A = {[]: 1}\n"), "unhashable type: 'list'"),
        (_write("run.gin", b"A = 1\r\nB = x\r\n"), "not a Python literal"),
        (_write("run.gin", b"include 'run.gin'\n"), "never ends: run.gin -> run.gin"),
        (lambda folder: (folder / "run.gin").mkdir(), "run.gin"),
        (_link("run.gin", "run.gin"), "there is no gin file run.gin"),
        (_link("run.gin", "gone.gin"), "there is no gin file run.gin"),
    ],
)
def test_odd_files_get_one_clear_error(folder: Folder, prepare: Callable[[Path], None], said: str) -> None:
    prepare(folder.path)
    status, printed = _command(folder.path, "run.gin")
    assert status != 0
    assert said in printed
    assert "Traceback" not in printed


def test_a_file_that_may_not_be_read_is_said(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write({"run.gin": "include 'secret.gin'\n", "secret.gin": "A = 1\n"})
    whole = Path.read_text

    def read_text(path: Path, *arguments: str, **named: str) -> str:
        if path.name == "secret.gin":  # file modes do not stop root, and tests may run as root
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    status, printed = _command(folder.path, "run.gin", "--run_mode=train")
    assert status == 1
    assert "cannot read secret.gin: Permission denied" in printed


@pytest.mark.parametrize(("depth", "complete"), [(450, True), (501, False)])
def test_a_chain_of_includes_is_followed_as_far_as_gin_can(folder: Folder, depth: int, complete: bool) -> None:
    folder.write({f"f{i}.gin": f"include 'f{i + 1}.gin'\n" for i in range(depth)} | {f"f{depth}.gin": "A = 1\n"})
    program = folder.read("include 'f0.gin'\n")
    assert program.complete is complete
    if complete:
        assert len(program.macros["A"].location.included_from) == depth + 1
    else:
        assert "more than Python's stack can hold" in program.problems[0].detail


@pytest.mark.parametrize(
    ("target", "said", "codes"),
    [
        ("gs://bucket/c.gin", "its bucket is not mounted here", ["GIN33", "GIN13"]),  # T5X would not read it anyway
        ("/gcs/bucket/c.gin", "its bucket is not mounted here", ["GIN13"]),
    ],
)
def test_an_include_that_is_out_of_reach_is_not_checked_and_no_error(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, target: str, said: str, codes: list[str]
) -> None:
    monkeypatch.setattr(files, "GCS_MOUNT", Path("/gcs"))
    result = folder.lint(RUN + f"include '{target}'\nutils.CheckpointConfig.sve = None\n")
    assert [f.code for f in result.findings] == codes
    assert any(f"what {target}, which run.gin:10 includes holds" in t and said in t for t in result.not_checked)
    assert any("cannot be read to the end" in text for text in result.not_checked)


def test_a_mounted_bucket_is_read_and_missed_files_in_it_are_missing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = folder.path / "mount"
    monkeypatch.setattr(files, "GCS_MOUNT", mount)
    folder.write({"mount/bucket/c.gin": "C = 1\n"})
    program = folder.read(f"include 'gs://bucket/c.gin'\ninclude '{mount}/bucket/c.gin'\n")
    assert program.problems == ()
    assert [m.value for m in program.statements if getattr(m, "name", "") == "C"] == [1, 1]
    assert [f.code for f in folder.findings("include 'gs://bucket/gone.gin'\n") if f.code == "GIN16"] == ["GIN16"]


def test_what_may_lie_in_a_bucket_of_the_search_path_is_said(folder: Folder) -> None:
    folder.write({"here/c.gin": "C = 1\n"})
    found = folder.read("include 'c.gin'\n", search_paths=("gs://bucket", "here"))
    assert found.macros["C"].value == 1
    assert found.not_checked[0].startswith("whether there is gs://bucket/c.gin, to be read in place of here/c.gin")
    missed = folder.read("include 'd.gin'\n", search_paths=("gs://bucket", "here"))
    assert not missed.complete
    assert missed.not_checked[0].startswith("what gs://bucket/d.gin, which run.gin:1 includes")


def test_a_run_out_of_reach_proves_nothing(folder: Folder) -> None:
    result = lint(RunSpec(("/gcs/bucket/run.gin",), cwd=str(folder.path)))
    assert (result.outcome, result.findings) == (Outcome.NOT_RUN, ())
    assert result.not_checked[0].startswith("what /gcs/bucket/run.gin holds: its bucket is not mounted here")


_READER = "import gin, tensorflow as tf\ngin.config.register_file_reader(tf.io.gfile.GFile, tf.io.gfile.exists)\n"


def test_gin_files_at_gs_cannot_be_opened_wherever_they_are(folder: Folder) -> None:
    folder.write({"buckets/bucket/c.gin": "C = 1\n", "buckets/bucket/run.gin": RUN})
    finding = folder.only(RUN + "include 'gs://bucket/c.gin'\n", "GIN33", gcs_root=str(folder.path / "buckets"))
    assert str(finding.location) == "run.gin:10"
    assert finding.message == "Gin cannot open gs://bucket/c.gin, nor anything else at gs://"
    assert finding.fix == "write '/gcs/bucket/c.gin', Vertex AI's mount of the bucket, or copy the file beside the job"
    named = RunSpec(
        ("gs://bucket/run.gin",), cwd=str(folder.path), settings=RunSettings(gcs_root=str(folder.path / "buckets"))
    )
    result = lint(named)
    assert result.outcome is Outcome.FAILED
    assert [(f.code, f.location) for f in result.findings] == [("GIN33", None)]


def test_gin_files_at_gs_where_a_module_gives_gin_a_reader(folder: Folder) -> None:
    folder.write({"buckets/bucket/c.gin": "C = 1\n", "readers.py": _READER})
    text = RUN + "import readers\ninclude 'gs://bucket/c.gin'\n"
    assert "GIN33" not in {f.code for f in folder.findings(text, gcs_root=str(folder.path / "buckets"))}


def test_a_link_to_another_folder_is_followed_before_its_parent(folder: Folder) -> None:
    folder.write({"far/inner/a.gin": "", "far/b.gin": "B = 'far'\n", "b.gin": "B = 'near'\n"})
    os.symlink(folder.path / "far" / "inner", folder.path / "link")
    assert folder.read("include 'link/../b.gin'\n").macros["B"].value == "far"


def test_a_text_is_parsed_once_for_all_runs_that_include_it(folder: Folder) -> None:
    folder.write({f"run{i}.gin": f"{RUN}LAST = {i}\n" for i in range(20)})
    parsing.parse.cache_clear()
    for i in range(20):
        read(RunSpec((f"run{i}.gin",), cwd=str(folder.path)), t5x_parent=T5X)
    one = len(read(RunSpec(("run0.gin",), cwd=str(folder.path)), t5x_parent=T5X).files)
    assert parsing.parse.cache_info().misses == 20 + one - 1


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
        lint(RunSpec(("run.gin",), (text,), cwd=folder))


_NAMES = st.from_regex(r"[A-Z][A-Z_]{0,5}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(_NAMES, st.integers() | _NAMES.map(Macro)), max_size=8))
def test_following_macros_always_ends(statements: list[tuple[str, Any]]) -> None:
    bindings = tuple(f"{name} = {value}" for name, value in statements)
    program = read(RunSpec((), bindings), t5x_parent=None)
    for macro in program.macros.values():
        program.resolve(macro)
    assert program.read_macros <= set()


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


def test_each_statement_of_a_long_file_is_looked_at_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is split into lines once for all its statements, or the time would grow with the square of its size."""
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
