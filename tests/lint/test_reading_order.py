"""The reader gets Gin's results: same files, same order, same winners; and it knows the place of each value."""

from __future__ import annotations

from pathlib import Path

from linting import FINETUNE, PRETRAIN, RUN, T5X, TINY, Folder, lint

from t5x_harness.gin.program import BINDINGS
from t5x_harness.gin.reader import read
from t5x_harness.gin.reading import bound_values, program_of
from t5x_harness.gin.values import Macro, Reference
from t5x_harness.lint.stage import missing_gin_files
from t5x_harness.spec import Assignment, BoundValue, Location, Mode, RunSpec, Severity


def test_the_last_statement_wins_and_is_located(folder: Folder) -> None:
    program = folder.read(RUN + "BATCH_SIZE = 4\nBATCH_SIZE = 5\n", bindings=["BATCH_SIZE = 6"])
    assert program.macros["BATCH_SIZE"].value == 6
    assert program.macros["BATCH_SIZE"].location == Location(BINDINGS, 1)
    assert [s.value for s in program.statements if getattr(s, "name", "") == "BATCH_SIZE"][-3:] == [4, 5, 6]


def test_a_binding_in_a_block_has_its_own_line_and_include_chain(folder: Folder) -> None:
    folder.write(
        {
            "inner.gin": "from __gin__ import dynamic_registration\nfrom t5x import utils\n\nutils.CheckpointConfig:\n"
            "  save = None\n  # why\n  restore = None\n"
        }
    )
    folder.write({"outer.gin": "\ninclude 'inner.gin'\n"})
    program = folder.read("A = 1\ninclude 'outer.gin'\n")
    restore = next(b for b in program.bindings if b.param == "restore")
    assert restore.location == Location("inner.gin", 7, (Location("run.gin", 2), Location("outer.gin", 2)))
    assert restore.target == "t5x.utils.CheckpointConfig"


def test_files_are_read_in_the_order_given(folder: Folder) -> None:
    folder.write({"a.gin": "X = 1\nY = 1\n", "b.gin": "X = 2\n"})
    program = read(RunSpec(("a.gin", "b.gin"), ("Y = 3",), cwd=str(folder.path)), t5x_parent=T5X)
    assert {name: m.value for name, m in program.macros.items()} == {"X": 2, "Y": 3}
    assert program.files == ("a.gin", "b.gin")


def test_the_working_directory_comes_before_search_paths_and_those_before_t5x(folder: Folder) -> None:
    folder.write({"here/x.gin": "X = 'search path'\n", "here/y.gin": "Y = 'search path'\n", "x.gin": "X = 'cwd'\n"})
    folder.write({"here/t5x/configs/runs/pretrain.gin": "P = 'search path'\n"})
    program = folder.read(f"include 'x.gin'\ninclude 'y.gin'\ninclude '{PRETRAIN}'\n", search_paths=("here",))
    assert program.macros["X"].value == "cwd"
    assert program.macros["Y"].value == "search path"
    # A file in an importable package is found there before the search paths are searched, as in Gin.
    assert "P" not in program.macros
    assert program.macros["BATCH_SIZE"].value == 128


def test_an_include_is_not_relative_to_its_file(folder: Folder) -> None:
    folder.write({"conf/a.gin": "include 'b.gin'\n", "conf/b.gin": "B = 1\n"})
    program = folder.read("include 'conf/a.gin'\n")
    assert not program.complete
    assert "B" not in program.macros


def test_absolute_includes_are_taken_as_they_are(folder: Folder) -> None:
    folder.write({"deep/b.gin": "B = 1\n"})
    assert folder.read(f"include '{folder.path}/deep/b.gin'\n").macros["B"].value == 1


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


def test_values_keep_macros_and_references(folder: Folder) -> None:
    program = folder.read(
        RUN + "A = [%BATCH_SIZE, @big/train/utils.DatasetConfig()]\nB = {'x': (@train_script.train, -1, 'a' 'b')}\n"
    )
    assert program.macros["A"].value == [
        Macro("BATCH_SIZE"),
        Reference("big/train", "utils.DatasetConfig", True, "t5x.utils.DatasetConfig"),
    ]
    assert program.macros["B"].value == {"x": (Reference("", "train_script.train", False, "__main__.train"), -1, "ab")}


def test_one_configurable_under_two_aliases_is_one(folder: Folder) -> None:
    folder.write(
        {
            "other.gin": "from __gin__ import dynamic_registration\nimport t5x.utils as u\nimport t5x.utils\n"
            "u.SaveCheckpointConfig.period = 7\nt5x.utils.SaveCheckpointConfig.keep = 8\n"
        }
    )
    program = folder.read(
        RUN + "include 'other.gin'\n", bindings=["SaveCheckpointConfig.dtype = 'bfloat16'", "train.eval_period = 3"]
    )
    save = "t5x.utils.SaveCheckpointConfig"
    assert [program.lookup(save, p).value for p in ("period", "keep", "dtype")] == [7, 8, "bfloat16"]  # type: ignore[union-attr]
    assert program.lookup("__main__.train", "eval_period").value == 3  # type: ignore[union-attr]
    assert program.problems == ()


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


def test_the_long_form_of_a_macro_is_the_macro(folder: Folder) -> None:
    program = folder.read("from __gin__ import dynamic_registration\nA/gin.macro.value = 3\nB = %A\n")
    assert program.macros["A"].value == 3


def test_modes_are_seen_from_the_binary_that_is_bound(folder: Folder) -> None:
    assert folder.read(RUN).mode is Mode.TRAIN
    assert folder.read("include 't5x/configs/runs/eval.gin'\n").mode is Mode.EVAL
    assert folder.read("include 't5x/configs/runs/infer.gin'\n").mode is Mode.INFER
    assert folder.read(f"include '{TINY}'\n").mode is None


def test_required_and_undefined_macros_are_listed(folder: Folder) -> None:
    program = folder.read(f"include '{FINETUNE}'\nTRAIN_STEPS = 3\n")
    assert [m.name for m in program.required_macros] == [
        "MODEL_DIR",
        "MIXTURE_OR_TASK_NAME",
        "TASK_FEATURE_LENGTHS",
        "INITIAL_CHECKPOINT_PATH",
    ]
    assert [name for name, _ in program.undefined_macros] == ["MODEL"]


def test_macros_are_read_through_other_macros_only_if_those_are_read(folder: Folder) -> None:
    program = folder.read(RUN + "A = %B\nB = %C\nC = 1\nD = 1\nTRAIN_STEPS = %D\n")
    assert {"A", "B", "C", "D"} & program.read_macros == {"D"}
    assert program.resolve(program.lookup("__main__.train", "total_steps")).value == 1  # type: ignore[arg-type]


def test_a_circle_of_macros_ends(folder: Folder) -> None:
    program = folder.read(RUN + "TRAIN_STEPS = %A\nA = %B\nB = %A\n")
    assert isinstance(program.resolve(program.lookup("__main__.train", "total_steps")).value, Macro)  # type: ignore[arg-type]


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
    assert missing_gin_files(RunSpec((DECODER,), cwd=str(folder.path)), t5x_parent=T5X) == ()  # it is here
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
