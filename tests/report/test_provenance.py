"""Where every final value of a config comes from: read from its text, through includes and the command line."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.gin.reading import bound_values, program_of
from t5x_harness.spec import Assignment, BoundValue, Location, RunSpec

BINDINGS = "--gin bindings"


def bound(folder: Path, files: dict[str, str], *bindings: str) -> dict[str, BoundValue]:
    """What a run of the last of these files is bound to, by name and in order."""
    for name, text in files.items():
        (folder / name).write_text(text)
    spec = RunSpec((list(files)[-1],), bindings=bindings, runtime="embedded", cwd=str(folder))
    return {value.name: value for value in bound_values(program_of(spec))}


def test_the_last_statement_wins_and_the_others_are_kept_in_order(tmp_path: Path) -> None:
    files = {"base.gin": "\nX = 1\n", "mid.gin": "include 'base.gin'\nX = 2\n", "run.gin": "include 'mid.gin'\nX = 3\n"}
    in_run = Location("run.gin", 1)
    assert bound(tmp_path, files, "X = [4, %Y]", "Y = 'z'") == {
        "X": BoundValue(
            "X",
            None,
            Assignment("[4, %Y]", Location(BINDINGS, 1)),
            (
                Assignment("1", Location("base.gin", 2, (in_run, Location("mid.gin", 1)))),
                Assignment("2", Location("mid.gin", 2, (in_run,))),
                Assignment("3", Location("run.gin", 2)),
            ),
        ),
        "Y": BoundValue("Y", None, Assignment("'z'", Location(BINDINGS, 2))),
    }


def test_a_parameter_is_one_under_whatever_name_a_file_imports_it(tmp_path: Path) -> None:
    head = "from __gin__ import dynamic_registration\n"
    files = {
        "a.gin": f"{head}from t5x import utils\ntrain/utils.DatasetConfig.batch_size = 8\n",
        "b.gin": f"include 'a.gin'\n{head}from t5x import utils as u\ntrain/u.DatasetConfig.batch_size = %BATCH_SIZE\n",
    }
    values = bound(tmp_path, files)
    assert list(values) == ["train/u.DatasetConfig.batch_size"]
    (value,) = values.values()
    assert value.configurable == "t5x.utils.DatasetConfig"
    assert value.assignment == Assignment("%BATCH_SIZE", Location("b.gin", 4))
    assert value.overridden == (Assignment("8", Location("a.gin", 3, (Location("b.gin", 1),))),)


def test_scopes_are_not_mixed_up(tmp_path: Path) -> None:
    head = "from __gin__ import dynamic_registration\nfrom t5x import utils\n"
    values = bound(tmp_path, {"a.gin": f"{head}a/utils.DatasetConfig.seed = 1\nutils.DatasetConfig.seed = 2\n"})
    assert {name: (v.assignment.value, v.overridden) for name, v in values.items()} == {
        "a/utils.DatasetConfig.seed": ("1", ()),
        "utils.DatasetConfig.seed": ("2", ()),
    }


def test_long_values_are_whole(tmp_path: Path) -> None:
    values = bound(tmp_path, {"a.gin": f"X = {list(range(100))}\n"})
    assert values["X"].assignment.value == str(list(range(100)))
