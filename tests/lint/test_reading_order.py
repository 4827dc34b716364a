"""The reader gets Gin's results: same files, same order, same winners; and it knows the place of each value."""

from pathlib import Path

from linting import PRETRAIN, RUN, T5X, TINY, Folder, lint

from t5x_harness.gin.program import BINDINGS
from t5x_harness.gin.reading import bound_values, program_of
from t5x_harness.lint.stage import missing_gin_files
from t5x_harness.spec import Assignment, BoundValue, Location, RunSpec, Severity


def test_the_working_directory_comes_before_search_paths_and_those_before_t5x(folder: Folder) -> None:
    folder.write({"here/x.gin": "X = 'search path'\n", "here/y.gin": "Y = 'search path'\n", "x.gin": "X = 'cwd'\n"})
    folder.write({"here/t5x/configs/runs/pretrain.gin": "P = 'search path'\n"})
    program = folder.read(f"include 'x.gin'\ninclude 'y.gin'\ninclude '{PRETRAIN}'\n", search_paths=("here",))
    assert program.macros["X"].value == "cwd"
    assert program.macros["Y"].value == "search path"
    # A file in an importable package is found there before the search paths are searched, as in Gin.
    assert "P" not in program.macros
    assert program.macros["BATCH_SIZE"].value == 128


def test_files_of_python_packages_are_found_without_importing_the_package(folder: Folder) -> None:
    folder.write(
        {
            "src/pkg/__init__.py": "raise RuntimeError('imported')\n",
            "src/pkg/conf/__init__.py": "",
            "src/pkg/conf/c.gin": "C = 1\n",
        }
    )
    program = folder.read("include 'pkg/conf/c.gin'\n", python_path=("src",))
    assert program.macros["C"].value == 1


def test_a_scoped_binding_beats_an_unscoped_one(folder: Folder) -> None:
    program = folder.read(
        RUN
        + "utils.DatasetConfig.seed = 1\nbig/utils.DatasetConfig.seed = 2\nbig/train/utils.DatasetConfig.pack = False\n"
    )
    config = "t5x.utils.DatasetConfig"
    assert program.lookup(config, "seed", "other").value == 1  # type: ignore[union-attr]
    assert program.lookup(config, "seed", "big/train").value == 2  # type: ignore[union-attr]
    # Nested scopes: big/train takes bindings from big and big/train, not from train.
    assert program.lookup(config, "batch_size", "big/train") is None


def test_macros_are_read_through_other_macros_only_if_those_are_read(folder: Folder) -> None:
    program = folder.read(RUN + "A = %B\nB = %C\nC = 1\nD = 1\nTRAIN_STEPS = %D\n")
    assert {"A", "B", "C", "D"} & program.read_macros == {"D"}
    assert program.resolve(program.lookup("__main__.train", "total_steps")).value == 1  # type: ignore[arg-type]


def test_a_file_in_a_clone_that_only_the_job_has_is_that_of_the_t5x_in_use(folder: Folder) -> None:
    """Images clone T5X's repository into the folder in which the job starts, and configs include files from there."""
    gin = RUN.replace(TINY, f"t5x/{TINY}").replace(PRETRAIN, f"/t5x/{PRETRAIN}")
    program = folder.read(gin)
    assert program.complete
    assert program.macros["BATCH_SIZE"].value == 128
    assert program.in_clone == {f"t5x/{TINY}": str(T5X / TINY), f"/t5x/{PRETRAIN}": str(T5X / PRETRAIN)}
    assert program.clone_doubts == (
        f"whether the job has t5x/{TINY}, /t5x/{PRETRAIN}: here is no such clone of T5X's repository, and the T5X in "
        "use was read",
    )


def test_a_clone_that_is_here_is_read(folder: Folder) -> None:
    folder.write({f"src/t5x/{TINY}": "BATCH_SIZE = 7\n"})
    program = folder.read(f"include 't5x/{TINY}'\n", search_paths=("src",))
    assert program.macros["BATCH_SIZE"].value == 7
    assert not program.in_clone
    assert not folder.read("include 't5x/t5x/configs/runs/no_such.gin'\n").complete


DECODER = "t5x/examples/decoder_only/models/base.gin"


def test_what_only_the_embedded_t5x_can_open_is_warned_of(folder: Folder) -> None:
    finding = folder.only(f"\ninclude '{DECODER}'\n", "GIN16")
    assert (finding.severity, finding.location) == (Severity.WARNING, Location("run.gin", 2))
    assert finding.message.startswith(
        f"the public T5X cannot open {DECODER}, unless it starts in the folder of its own clone: its folder "
        "t5x/examples/decoder_only/models has no __init__.py"
    )
    found = lint(RunSpec((DECODER,), cwd=str(folder.path))).findings
    assert [f.severity for f in found if f.code == "GIN16"] == [Severity.WARNING]
    assert missing_gin_files(program_of(RunSpec((DECODER,), cwd=str(folder.path)), t5x_parent=T5X)) == ()  # it is here
    folder.write({DECODER: "BATCH_SIZE = 1\n"})
    assert "GIN16" not in [f.code for f in folder.findings(f"include '{DECODER}'\n")]


def bound(folder: Path, files: dict[str, str], *bindings: str) -> dict[str, BoundValue]:
    """Returns the bound values of a run of the last of these files, by name and in order."""
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
