"""Findings of every stage are on one of the user's lines, never in a library's gin file."""

from pathlib import Path

import pytest
from linting import PRETRAIN, RUN, T5X, TINY, Folder

from t5x_harness.gin.reader import read
from t5x_harness.lint.stage import on_own_lines, own_line
from t5x_harness.spec import Finding, Location, RunSpec, Severity, Stage

OPEN = RUN.replace("TRAIN_STEPS = 100\n", "")


def test_a_library_line_is_shown_where_the_user_includes_it(folder: Folder) -> None:
    folder.write({"common/base.gin": f"# ours\ninclude '{PRETRAIN}'\n"})
    finding = folder.only(OPEN.replace(PRETRAIN, "common/base.gin"), "GIN03")
    assert finding.location == Location("common/base.gin", 2, (Location("run.gin", 5),))
    assert finding.message.startswith("TRAIN_STEPS is gin.REQUIRED and nothing gives it a value (t5x/configs/runs/")


def test_a_library_file_that_only_the_command_line_names_has_no_line_of_the_users(folder: Folder) -> None:
    spec = RunSpec((TINY, PRETRAIN), ("MIXTURE_OR_TASK_NAME = 'x'",), cwd=str(folder.path))
    program = read(spec, t5x_parent=T5X)
    place = Location(str(T5X / PRETRAIN), 20)
    finding = Finding("SEQ01", Severity.ERROR, Stage.RESOLVE, "no cache", place)
    (moved,) = on_own_lines([finding], program)
    assert (moved.location, moved.message) == (None, f"no cache ({PRETRAIN}:20)")


def test_a_library_file_that_is_linted_by_its_own_name_keeps_its_lines() -> None:
    program = read(RunSpec((PRETRAIN,), cwd=str(T5X)), t5x_parent=T5X)
    assert own_line(Location(PRETRAIN, 20), program) == Location(PRETRAIN, 20)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (RUN.replace("= 100", "= 1e2"), "GIN09", f"read by train_script.train.total_steps in {PRETRAIN}:"),
        (f"BATCH_SIZE = 64\n{RUN}", "GIN04", f"sets it to 128 ({PRETRAIN}:"),
        (f"{RUN}from t5x import adafactor\nOPTIMIZER = @adafactor.Adafactor\n", "GIN20", "in t5x/examples/t5/t5_1_1/"),
    ],
)
def test_words_name_a_library_file_as_an_include_does(folder: Folder, text: str, code: str, named: str) -> None:
    finding = folder.only(text, code)
    assert named in finding.message
    assert str(T5X) not in finding.message


def test_files_of_other_packages_are_named_by_their_place_in_the_package(folder: Folder) -> None:
    package = folder.path / "lib" / "site-packages"
    folder.write({"lib/site-packages/theirs/__init__.py": "", "lib/site-packages/theirs/run.gin": "TRAIN_STEPS = 7\n"})
    text = RUN + "include 'theirs/run.gin'\n"
    (finding,) = [f for f in folder.lint(text, search_paths=(str(package),)).findings if f.code == "GIN04"]
    assert "sets it to 7 (theirs/run.gin:1)" in finding.message


def test_other_places_stay(folder: Folder) -> None:
    program = folder.read(RUN)
    for place in (Location("run.gin", 3), Location("--gin bindings", 1), Location("src/tasks.py", 4), None):
        finding = Finding("SEQ23", Severity.ERROR, Stage.RESOLVE, "a metric", place)
        assert on_own_lines([finding], program) == (finding,)


def test_a_comment_beside_the_include_silences_what_stands_there(folder: Folder) -> None:
    result = folder.lint(OPEN.replace(f"include '{PRETRAIN}'", f"include '{PRETRAIN}'  # t5x-harness: ignore[GIN03]"))
    assert [f.code for f in result.findings] == []
    assert [f.code for f in result.silenced] == ["GIN03"]


def test_a_file_of_t5x_has_its_name_there_where_the_package_is_a_link(tmp_path: Path) -> None:
    real = tmp_path / "clones/fork/source"
    (real / "configs").mkdir(parents=True)
    (real / "configs/run.gin").write_text("X = 1\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/t5x").symlink_to(real)
    (tmp_path / "project/a.gin").write_text("include 't5x/configs/run.gin'\n")
    program = read(RunSpec(("a.gin",), cwd=str(tmp_path / "project")), t5x_parent=tmp_path / "project")
    assert [program.name_of(file) for file in program.files] == ["a.gin", "t5x/configs/run.gin"]
