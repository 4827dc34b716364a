"""What the findings say: the place, the values that disagree and the fix."""

from __future__ import annotations

import re

import pytest
from linting import FINETUNE, PRETRAIN, RUN, T5X, TINY, Folder

from t5x_harness.lint import lint
from t5x_harness.spec import Location, Mode, Outcome, RunSpec, Severity, StandInPolicy

INSTALL_T5 = "python -m pip install babel nltk rouge-score scikit-learn, then python -m pip install --no-deps t5"
STANDINS_OF_T5 = (
    "; runs here have stand-ins for c4_v220_span_corruption, wmt14_enfr_v003, wmt19_ende_v003, wmt_t2t_ende_v003, and "
    "for none of its other tasks"
)


@pytest.mark.parametrize(
    ("code", "addition", "line", "message", "fix"),
    [
        ("GIN01", "BATCHSIZE = 4\n", 10, "nothing reads the macro BATCHSIZE, so BATCH_SIZE stays 128",
         "did you mean BATCH_SIZE? Write BATCH_SIZE = 4"),
        ("GIN02", "NUM_EMBEDDINGS = 9\n", 10, "nothing reads the macro NUM_EMBEDDINGS = 9",
         "remove it, or use %NUM_EMBEDDINGS in the parameter that it is meant for"),
        ("GIN06", "trian/utils.DatasetConfig.pack = False\n", 10,
         "nothing opens the scope trian, so trian/utils.DatasetConfig.pack has no effect", "did you mean train/?"),
        ("GIN07", "MODEL_DIR = gs://bkt/x\n", 10, "cannot parse `MODEL_DIR = gs://bkt/x`: not a Python literal",
         "a string needs quotes: MODEL_DIR = 'gs://bkt/x'"),
        ("GIN07", "SHUFFLE_TRAIN_EXAMPLES = false\n", 10,
         "cannot parse `SHUFFLE_TRAIN_EXAMPLES = false`: not a Python literal", "write SHUFFLE_TRAIN_EXAMPLES = False"),
        ("GIN07", "include t5x/configs/runs/eval.gin\n", 10,
         "cannot parse `include t5x/configs/runs/eval.gin`: not a Python literal",
         "an include is followed by a file name in quotes: include 'path/file.gin'"),
        ("GIN07", "X = {'a': 1,\n", 10, "cannot parse `X = {'a': 1,`: EOF in multi-line statement",
         "close the bracket that is opened in this statement"),
        ("GIN07", "LENGTHS = dict(inputs=128, targets=32)\n", 10,
         "cannot parse `LENGTHS = dict(inputs=128, targets=32)`: not a Python literal",
         "gin calls no functions: write {'inputs': 128, 'targets': 32}"),
        ("GIN07", "MODEL_DIR = f'gs://b/{x}'\n", 10, "cannot parse `MODEL_DIR = f'gs://b/{x}'`: not a Python literal",
         "gin has no f-strings: write the whole string, or pass --gin.MODEL_DIR=\"'...'\" where it is known"),
        ("GIN07", "EVAL_PERIOD = 10 * 100\n", 10, "cannot parse `EVAL_PERIOD = 10 * 100`: Expected newline",
         "gin does not calculate: write the result as one number"),
        ("GIN16", "include 't5x/examples/t5/t5_1_1/c4_pretrain_small.gin'\n", 10,
         "there is no gin file t5x/examples/t5/t5_1_1/c4_pretrain_small.gin; searched: ., the folder of t5x",
         "did you mean 't5x/examples/t5/t5_1_1/examples/small_c4_pretrain.gin'? Or install T5X from its git repository "
         "if the file is one that the embedded runtime does not have"),
        ("GIN19", "train/utils.DatasetConfig.batch_size = BATCH_SIZE\n", 10,
         "cannot parse `train/utils.DatasetConfig.batch_size = BATCH_SIZE`: a macro is read with %",
         "write train/utils.DatasetConfig.batch_size = %BATCH_SIZE"),
        ("GIN08", "train/utils.DatasetConfig.batch_size = '16'\n", 10,
         "train/utils.DatasetConfig.batch_size = '16' is a string, and a number is needed",
         "take the quotes away: train/utils.DatasetConfig.batch_size = 16"),
        ("GIN09", "utils.SaveCheckpointConfig.period = 1e3\n", 10,
         "utils.SaveCheckpointConfig.period = 1000.0 is a float, and a whole number is needed",
         "write utils.SaveCheckpointConfig.period = 1_000"),
        ("GIN11", "", 2, "dynamic registration is switched on after import seqio",
         "move `from __gin__ import dynamic_registration` above all other imports of the file"),
        ("GIN13", "train/utils.DatasetConfig.bach_size = 8\n", 10,
         "utils.DatasetConfig has no parameter bach_size; did you mean batch_size?",
         "write train/utils.DatasetConfig.batch_size"),
        ("GIN14", "train/utils.DatasetConfg.batch_size = 8\n", 10,
         "t5x.utils has no DatasetConfg; did you mean DatasetConfig?", "check its spelling"),
        ("GIN14", "train_script.trian.eval_steps = 8\n", 10, "T5X's binaries have no trian; did you mean train?",
         "they have train, evaluate, infer"),
        ("GIN15", "import my_own_tasks\n", 10, "there is no module my_own_tasks",
         "install it, or add its folder to python_path (searched: ., and the installed packages)"),
        ("GIN15", "from t5x.examples.t5 import netwrok\n", 10,
         "there is no module t5x.examples.t5.netwrok",
         "the embedded runtime does not have it: install T5X from its git repository"),
        ("GIN18", "EVAL_STEPS = %BATCHSIZE\n", 10,
         "nothing defines the macro BATCHSIZE that EVAL_STEPS reads; did you mean BATCH_SIZE?",
         "correct the name in EVAL_STEPS"),
        ("GIN20", "train_script.train.partitioner = @utils.CheckpointConfig\n", 10,
         "train_script.train.partitioner = @utils.CheckpointConfig is not called, and an object is needed",
         "add (): train_script.train.partitioner = @utils.CheckpointConfig()"),
        ("GIN20", "train_script.train.train_state_initializer_cls = @utils.TrainStateInitializer()\n", 10,
         "train_script.train.train_state_initializer_cls = @utils.TrainStateInitializer() is called, and the class "
         "itself is needed",
         "take the () away: train_script.train.train_state_initializer_cls = @utils.TrainStateInitializer"),
        ("GIN29", "partitioning.PjitPartitioner:\n  num_partitions = 1\n  backend = None\n", 10,
         "partitioning in partitioning.PjitPartitioner is not imported in this file",
         "add `from t5x import partitioning` to run.gin"),
        ("MSH12", "train_script.train.eval_period = 300\n", 10,
         "the checkpoint period 1000 (utils.SaveCheckpointConfig.period) is not a multiple of the eval period 300 "
         "(train_script.train.eval_period, run.gin:10)", "make it a multiple of 300, such as 900 or 1200"),
    ],
)  # fmt: skip
def test_place_message_and_fix(
    folder: Folder, code: str, addition: str, line: int | None, message: str, fix: str
) -> None:
    gin = RUN + addition if code != "GIN11" else "import seqio\n" + RUN
    finding = folder.only(gin, code)
    assert (finding.message, finding.fix) == (message, fix)
    if line is not None:
        assert finding.location == Location("run.gin", line)


def test_what_an_include_overrides_is_said_with_both_values(folder: Folder) -> None:
    finding = folder.only(RUN.replace("include", "BATCH_SIZE = 7\ninclude", 1), "GIN04")
    assert (
        finding.message == f"BATCH_SIZE = 7 is lost: the include in line 6 sets it to 128 ({PRETRAIN}:{_line('BATCH')})"
    )
    assert (str(finding.location), finding.fix) == ("run.gin:4", "move the binding below line 6")


def test_the_same_value_above_an_include_is_fine(folder: Folder) -> None:
    assert folder.lint(RUN.replace("include", "BATCH_SIZE = 128\ninclude", 1)).findings == ()


def test_an_unscoped_binding_is_fine_where_it_counts(folder: Folder) -> None:
    finding = folder.only(RUN + "utils.DatasetConfig.batch_size = 9\n", "GIN05")
    assert finding.message.startswith(
        "utils.DatasetConfig.batch_size = 9 has no effect: train/utils.DatasetConfig.batch_size = %BATCH_SIZE ("
    )
    assert finding.fix == (
        "bind it in the scope that is used (train, train_eval): train/utils.DatasetConfig.batch_size = 9"
    )
    # Nothing more specific gives these.
    assert folder.lint(RUN + "utils.DatasetConfig.num_workers = 2\n").findings == ()


def test_every_missing_value_is_listed_at_once(folder: Folder) -> None:
    gin = f"include '{TINY}'\ninclude '{FINETUNE}'\nTRAIN_STEPS = 3\n"
    found = [f for f in folder.findings(gin) if f.code == "GIN03"]
    assert [f.binding for f in found] == ["MIXTURE_OR_TASK_NAME", "TASK_FEATURE_LENGTHS", "INITIAL_CHECKPOINT_PATH"]
    assert {f.location for f in found} == {Location("run.gin", 2)}
    assert re.fullmatch(
        rf"MIXTURE_OR_TASK_NAME is gin.REQUIRED and nothing gives it a value \({FINETUNE}:\d+\)", found[0].message
    )
    assert found[0].fix == (
        "bind it below the includes (MIXTURE_OR_TASK_NAME = ...) or pass --gin.MIXTURE_OR_TASK_NAME=..."
    )


def test_output_folders_may_stay_open_and_are_named(folder: Folder) -> None:
    result = folder.lint(RUN)
    assert result.findings == ()
    assert ("left to the launcher", "MODEL_DIR") in result.facts


def test_a_missing_model_is_told_from_a_misspelt_macro(folder: Folder) -> None:
    finding = folder.only(RUN.replace(f"include '{TINY}'\n", ""), "GIN18")
    assert finding.message.startswith("nothing defines the macro MODEL that train_script.train.model reads (t5x/")
    assert finding.location == Location("run.gin", 4)
    assert finding.fix == "include a model's gin file, such as 't5x/examples/t5/t5_1_1/small.gin'"


def test_a_name_without_registration_depends_on_the_order_of_includes(folder: Folder) -> None:
    use = "utils.SaveCheckpointConfig.period = 50\n"
    includes = f"include '{TINY}'\ninclude '{PRETRAIN}'\n"
    assert not any(f.code == "GIN10" for f in folder.findings(includes + use))
    finding = folder.only(use + includes, "GIN10")
    assert finding.message == (
        "no configurable matches utils.SaveCheckpointConfig here: nothing that was read before has registered it"
    )
    assert finding.fix == ("begin the file with `from __gin__ import dynamic_registration` and `from t5x import utils`")


def test_names_that_the_users_own_modules_may_register_are_not_judged(folder: Folder) -> None:
    folder.write({"my_tasks.py": "import my_registry\n", "my_registry.py": "import gin\n"})
    result = folder.lint("import my_tasks\n" + "make_vocabulary.size = 3\n" + RUN.replace("from __gin__", "#", 1))
    assert not any("make_vocabulary" in f.message for f in result.findings)
    assert any("make_vocabulary" in text and "my_tasks" in text for text in result.not_checked)


def test_names_that_no_module_can_have_registered_are_unknown(folder: Folder) -> None:
    folder.write({"my_tasks.py": "import json\ndef make_vocabulary(size): ...\n"})
    lines = "import my_tasks\nmy_tasks.make_vocabulary.size = 3\n"
    finding = folder.only(lines + RUN.replace("from __gin__", "#", 1), "GIN10")
    assert finding.message == (
        "no configurable matches my_tasks.make_vocabulary here: nothing that was read before has registered it"
    )
    folder.write({"my_tasks.py": "import a_package_that_is_not_here\n"})
    assert folder.lint(lines + RUN.replace("from __gin__", "#", 1)).not_checked[0].startswith("whether my_tasks.make")


@pytest.mark.parametrize("end", ["", "\n\n", "  \n# the end\n"])
def test_a_block_without_a_line_is_found_at_its_head(folder: Folder, end: str) -> None:
    finding = folder.only(f"{RUN}train/utils.DatasetConfig:\n{end}", "GIN07")
    assert "cannot parse `" in finding.message
    assert "``" not in finding.message
    assert finding.fix == "bind a parameter in an indented line below the head of the block, or remove the head"
    assert finding.location is not None
    assert finding.location.line == (10 if not end.strip() else 12)


def test_dynamic_registration_twice_is_refused(folder: Folder) -> None:
    switch = "from __gin__ import dynamic_registration\n"
    for gin, line in ((switch + RUN, 2), (RUN + switch, 10)):
        finding = folder.only(gin, "GIN11")
        assert finding.message == "dynamic registration is switched on a second time in this file"
        assert finding.location == Location("run.gin", line)
        assert [(edit.first, edit.last, edit.text) for edit in finding.edits] == [(line, line, "")]


def test_a_module_is_nothing_to_configure(folder: Folder) -> None:
    lines = "utils.seed = 3\ntrain_script.total_steps = 3\ntrain/utils.DatasetConfig.module = @utils\n"
    assert [(f.location.line, f.message) for f in folder.findings(RUN + lines) if f.location] == [
        (10, "utils is a module, not something to configure"),
        (11, "train_script is a module, not something to configure"),
    ]  # said once of each module in a file


def test_a_word_that_a_module_of_t5x_only_mentions_is_no_name_in_it(folder: Folder) -> None:
    finding = folder.only(f"{RUN}utils.f.x = 1\n", "GIN14")
    assert finding.message == "t5x.utils has no f"


def test_an_alias_of_the_binary_is_refused_on_the_command_line(folder: Folder) -> None:
    finding = folder.only(RUN, "GIN28", bindings=["X = 1", "train_script.train.eval_period = 5"])
    assert finding.location == Location("--gin bindings", 2)
    assert (
        finding.message == "no configurable matches train_script.train: train_script is an alias inside gin files only"
    )
    assert finding.fix == "leave the alias out: --gin.train.PARAMETER=VALUE"
    assert folder.lint(RUN, bindings=["train.eval_period = 5"]).outcome is Outcome.PASSED


def test_quotes_on_the_command_line_are_shown_for_the_shell(folder: Folder) -> None:
    finding = folder.only(RUN, "GIN07", bindings=["MODEL_DIR = gs://bkt/x"])
    assert finding.fix == """a string needs quotes: --gin.MODEL_DIR="'gs://bkt/x'\""""


def test_the_wrong_mode_is_told_by_the_function(folder: Folder) -> None:
    finding = folder.only(RUN, "GIN12", mode=Mode.EVAL)
    assert finding.message.startswith(
        "train_script.train.model is for train runs (train), and eval was asked for (t5x/"
    )
    assert finding.fix == "run it with --run_mode=train, or include the run file for eval"


def test_a_fragment_that_is_run_is_told_what_is_missing(folder: Folder) -> None:
    finding = folder.only(f"include '{TINY}'\n", "GIN31")
    assert finding.message == "this is not a run config: it binds none of T5X's functions train, evaluate and infer"
    assert finding.location == Location("run.gin", 1)
    eval_only = "from __gin__ import dynamic_registration\nimport __main__ as e\ne.evaluate.model = None\n"
    assert folder.only(eval_only, "GIN31").message == (
        "evaluate needs dataset_cfg, restore_checkpoint_cfg, partitioner, output_dir, and nothing binds them"
    )


@pytest.mark.parametrize(
    ("steps", "code", "message", "fix"),
    [
        (20_000, "CKP01", "TRAIN_STEPS = 20000 is below step 1000000 of the checkpoint gs://bkt/checkpoint_1000000",
         "count the checkpoint's steps too: TRAIN_STEPS = 1_020_000 trains 20000 more"),
        (1_000_000, "CKP02",
         "TRAIN_STEPS = 1000000 is the step of the checkpoint gs://bkt/checkpoint_1000000: nothing would be trained",
         "add the steps to train: TRAIN_STEPS = 1_000_000 + N, written as one number"),
    ],
)  # fmt: skip
def test_steps_are_held_against_the_checkpoint(folder: Folder, steps: int, code: str, message: str, fix: str) -> None:
    gin = (
        RUN.replace(PRETRAIN, FINETUNE)
        + f"INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_1000000'\nTRAIN_STEPS = {steps}\n"
    )
    finding = folder.only(gin, code)
    assert (finding.message, finding.fix) == (message, fix)
    assert folder.lint(gin + "TRAIN_STEPS_RELATIVE = 10\n").findings == ()
    assert folder.lint(gin + "utils.CheckpointConfig.restore = None\n").errors == ()


def test_periods_are_only_held_against_the_smallest(folder: Folder) -> None:
    gin = (
        RUN
        + "train_script.train.eval_period = 2000\ntrain_script.train.gc_period = 1000\n"
        + "utils.SaveCheckpointConfig.period = 3000\n"
    )
    assert folder.lint(gin).findings == ()
    assert folder.lint(RUN + "train_script.train.eval_period = 0\n").findings == ()
    assert folder.lint(RUN + "utils.CheckpointConfig.save = None\ntrain_script.train.eval_period = 7\n").findings == ()


@pytest.mark.parametrize(
    ("target", "files", "fix"),
    [
        ("models/tiny.gin", {"models/tinny.gin": ""}, "did you mean models/tinny.gin?"),
        ("nowhere.gin", {}, "check the name, or put the folder that it is relative to on the search paths"),
        ("t5x/configs/runs/pretrian.gin", {},
         "did you mean 't5x/configs/runs/pretrain.gin'? Or install T5X from its git repository if the file is one that "
         "the embedded runtime does not have"),
    ],
)  # fmt: skip
def test_a_missing_include_says_where_it_was_searched(
    folder: Folder, target: str, files: dict[str, str], fix: str
) -> None:
    folder.write(files)
    finding = folder.only(f"\ninclude '{target}'\n", "GIN16", search_paths=(f"{folder.path}/conf",))
    assert finding.message == f"there is no gin file {target}; searched: ., conf, the folder of t5x"
    assert (finding.location, finding.fix) == (Location("run.gin", 2), fix)


def test_the_package_t5_is_not_taken_for_a_misspelt_neighbour(folder: Folder) -> None:
    folder.write({"t5x_of_mine/__init__.py": "", "t5y/__init__.py": ""})
    finding = folder.only(f"{RUN}import t5.data.mixtures\n", "GIN15")
    assert finding.fix == f"install it: {INSTALL_T5}"
    finding = folder.only(f"{RUN}import flaxformer.components\n", "GIN15")
    assert finding.fix == "install it: python -m pip install git+https://github.com/google/flaxformer"


@pytest.mark.parametrize(
    ("gin", "said", "standins", "severity"),
    [
        ("import t5.data.mixtures\n", STANDINS_OF_T5, StandInPolicy.MISSING, Severity.WARNING),
        ("import t5.data.mixtures\n", "", StandInPolicy.OFF, Severity.ERROR),
        ("import t5.data.preprocessors\n", "", StandInPolicy.MISSING, Severity.ERROR),
    ],
)
def test_the_tasks_that_stand_for_the_package_t5_are_named(
    folder: Folder, gin: str, said: str, standins: StandInPolicy, severity: Severity
) -> None:
    finding = folder.only(f"{RUN}{gin}", "GIN15", standins=standins)
    assert finding.message == f"there is no module t5 (for {gin.split()[1]}){said}"
    assert (finding.severity, finding.fix) == (severity, f"install it: {INSTALL_T5}")


def test_the_config_for_deterministic_training_of_the_guide_is_answered_with_settings(folder: Folder) -> None:
    finding = folder.only("include 't5x/configs/runs/pretrain_deterministic.gin'\n", "GIN16")
    assert finding.fix == (
        "T5X has no such file: include 't5x/configs/runs/pretrain.gin' and set train/utils.DatasetConfig.seed = 42, "
        "RANDOM_SEED = 42 and utils.SaveCheckpointConfig.save_dataset = True"
    )


def test_an_include_beside_its_file_is_recognised(folder: Folder) -> None:
    folder.write({"conf/a.gin": "include 'b.gin'\n", "conf/b.gin": ""})
    finding = folder.only("include 'conf/a.gin'\n", "GIN16")
    assert finding.fix == "it lies beside the file that includes it: pass --gin_search_paths=conf"


def test_a_file_that_the_user_named_has_no_line(folder: Folder) -> None:
    result = lint(RunSpec(("gone.gin",), cwd=str(folder.path)), t5x_parent=T5X)
    assert [(f.code, f.location) for f in result.errors] == [("GIN16", None)]
    assert result.outcome is Outcome.FAILED


def test_a_folder_without_init_stops_gin_before_the_search_paths(folder: Folder) -> None:
    folder.write({"conf/other.gin": "", "there/conf/x.gin": "X = 1\n"})
    finding = folder.only("include 'conf/x.gin'\n", "GIN16", search_paths=("there",))
    assert finding.message == (
        "Gin cannot open conf/x.gin: before there/conf/x.gin it looks into the folder conf, which has no __init__.py, "
        "and stops there (expected str, bytes or os.PathLike object, not NoneType)"
    )


def test_a_circle_of_includes_is_shown(folder: Folder) -> None:
    folder.write({"a.gin": "include 'b.gin'\n", "b.gin": "\ninclude 'a.gin'\n"})
    finding = folder.only("include 'a.gin'\n", "GIN32")
    assert finding.message == "including a.gin here never ends: run.gin -> a.gin -> b.gin -> a.gin"
    assert finding.location == Location("b.gin", 2, (Location("run.gin", 1), Location("a.gin", 1)))


def test_all_syntax_errors_are_shown_in_one_reading(folder: Folder) -> None:
    gin = "A = x\nB = 1\nC = $\nutils.X:\n  y = z\nD = 2\n"
    found = [f for f in folder.findings(gin) if f.code == "GIN07"]
    assert [f.location.line for f in found if f.location] == [1, 3, 5]
    assert set(folder.read(gin).macros) == {"B", "D"}


def test_what_needs_the_whole_config_is_left_out_and_said(folder: Folder) -> None:
    result = folder.lint(RUN + "BATCHSIZE = 3\ninclude 'gone.gin'\n")
    assert {f.code for f in result.findings} == {"GIN16"}
    assert any("GIN01, GIN02, GIN03" in text for text in result.not_checked)


def test_errors_come_first_and_in_reading_order(folder: Folder) -> None:
    found = folder.findings(RUN + "BATCHSIZE = 3\nTRAIN_STEPS = 1.5\nimport gone\n")
    assert [(f.code, f.severity) for f in found] == [
        ("GIN09", Severity.ERROR),
        ("GIN15", Severity.ERROR),
        ("GIN01", Severity.WARNING),
    ]


def test_what_lies_outside_t5x_is_said_not_to_be_checked(folder: Folder) -> None:
    assert folder.lint(RUN).not_checked == ()
    result = folder.lint(RUN + "import flax\nflax.linen.Dense.features = 3\n")
    assert result.not_checked == (
        "names and parameters of flax.linen.Dense: known only once they are imported (resolve)",
    )


def test_an_empty_file_proves_nothing(folder: Folder) -> None:
    result = folder.lint("# nothing\n")
    assert (result.outcome, result.exercised) == (Outcome.FAILED, 0)


def test_a_fork_of_t5x_may_have_more_than_the_record(folder: Folder) -> None:
    folder.write(
        {
            "fork/t5x/__init__.py": "",
            "fork/t5x/utils.py": "class DatasetConfig:\n  extra: int\n\nnew_thing = object()\n",
        }
    )
    gin = (
        "from __gin__ import dynamic_registration\nfrom t5x import utils\n"
        "utils.DatasetConfig.extra = 1\nutils.new_thing.x = 1\nutils.DatasetConfig.extras = 1\n"
    )
    result = lint(folder.spec(gin), t5x_parent=folder.path / "fork")
    names = [f.message for f in result.findings if f.code in ("GIN13", "GIN14")]
    assert names == ["utils.DatasetConfig has no parameter extras"]


def _line(start: str) -> int:
    lines = (T5X / PRETRAIN).read_text().splitlines()
    return next(number for number, text in enumerate(lines, start=1) if text.startswith(start))


def test_a_macro_with_the_wrong_type_is_reported_once_with_a_reader(folder: Folder) -> None:
    finding = folder.only(RUN + "BATCH_SIZE = '16'\n", "GIN08")
    assert finding.message == (
        "BATCH_SIZE = '16' is a string, and a number is needed (read by train/utils.DatasetConfig.batch_size in "
        f"{PRETRAIN}:{_line('train/utils.DatasetConfig:') + 4})"
    )


def test_a_file_of_t5x_that_is_given_later_overrides_the_users(folder: Folder) -> None:
    folder.write({"mine.gin": "BATCH_SIZE = 7\nTRAIN_STEPS = 3\n", "more.gin": "DROPOUT_RATE = 0.1\n"})
    files = ("mine.gin", "more.gin", TINY, PRETRAIN)
    spec = RunSpec(files, ("TRAIN_STEPS = 5", "DROPOUT_RATE = 0.1"), cwd=str(folder.path))
    (found,) = [f for f in lint(spec, t5x_parent=T5X).findings if f.code == "GIN04"]
    assert found.location == Location("mine.gin", 1)
    assert found.message.startswith("BATCH_SIZE = 7 is lost: ")
    assert "pretrain.gin, which is given after mine.gin, sets it to 128" in found.message
    assert found.fix is not None
    assert found.fix.startswith("give mine.gin after ")
    turned = RunSpec((TINY, PRETRAIN, "mine.gin", "more.gin"), spec.bindings, cwd=str(folder.path))
    assert not [f for f in lint(turned, t5x_parent=T5X).findings if f.code == "GIN04"]


def test_an_included_file_may_bind_macros_that_only_other_runs_read(folder: Folder) -> None:
    shared = "BATCH_SIZE = 64\nNUM_EMBEDDINGS = 9\n"
    folder.write({"data.gin": shared})
    head = "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/infer.gin'\n"
    by_name = {f.binding: f for f in folder.findings(head + "include 'data.gin'\n") if f.code == "GIN02"}
    assert by_name["BATCH_SIZE"].severity is Severity.NOTE
    assert by_name["BATCH_SIZE"].fix.startswith("keep it for other runs, or use %BATCH_SIZE ")
    assert by_name["NUM_EMBEDDINGS"].severity is Severity.WARNING
    own = {f.binding: f for f in folder.findings(head + shared) if f.code == "GIN02"}
    assert own["BATCH_SIZE"].severity is Severity.WARNING
