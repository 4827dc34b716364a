"""Findings name the place, the values that disagree and the fix."""

import re

import pytest
from linting import FINETUNE, PRETRAIN, RUN, TINY, Folder, lint

from t5x_harness.spec import Location, Mode, Outcome, RunSpec, Severity, StandInPolicy

INSTALL_T5 = "python -m pip install babel nltk rouge-score scikit-learn, then python -m pip install --no-deps t5"
STANDINS_OF_T5 = (
    "; runs here have stand-ins for c4_v220_span_corruption, wmt14_enfr_v003, wmt19_ende_v003, wmt_t2t_ende_v003, and "
    "for none of its other tasks"
)


EVAL = f"""\
from __gin__ import dynamic_registration
import seqio
import __main__ as eval_script
from t5x import utils
include '{TINY}'
include 't5x/configs/runs/eval.gin'
MIXTURE_OR_TASK_NAME = 'my_task'
CHECKPOINT_PATH = 'gs://bkt/checkpoint_10'
DROPOUT_RATE = 0.0
"""
INCLUDES = f"include '{TINY}'\ninclude '{PRETRAIN}'\n"
DYNAMIC = "from __gin__ import dynamic_registration\n"
GIN = RUN.replace("import utils\n", "import utils\nfrom t5x import models\nfrom gin import config\nimport seqio\n") + (
    "models.EncoderDecoderModel.input_vocabulary = @v/gin.singleton()\n"
    "models.EncoderDecoderModel.output_vocabulary = @v/config.singleton()\n"
    "v/gin.singleton.constructor = @seqio.ByteVocabulary\n"
    "BATCH_SIZE/gin.macro.value = 8\n"
    "train_script.train.eval_steps = @gin.constant()\n"
)
MINE = "import mine\nmine.make_vocabulary.size = 3\n"
NESTED = RUN + "train_script.train.train_dataset_cfg = @big/train/utils.DatasetConfig()\n"
BIG = (
    "big/utils.DatasetConfig:\n  mixture_or_task_name = 'x'\n  task_feature_lengths = None\n  split = 'train'\n"
    "  batch_size = 8\n  shuffle = True\n  seed = None\n"
)
EVALUATED = RUN + "train_script.train.infer_eval_dataset_cfg = @train_eval/utils.DatasetConfig()\n"
LOGGERS = "seqio.Evaluator.logger_cls = "
CONTROLLED = EVAL + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_20'\n"
NESTED_SAVE = "utils.CheckpointConfig.save = @a/b/utils.SaveCheckpointConfig()\n"
PREEMPTIBLE = RUN.replace("utils\n", "utils\nfrom t5x import trainer\nfrom t5x_harness import preemption\n", 1) + (
    "train_script.train.trainer_cls = @preemption.Trainer\n"
)
OTHER_LOGGER = EVAL.replace("import seqio\n", "import seqio\nimport mine\n") + LOGGERS
ABOVE = RUN.replace("include", "BATCH_SIZE = 7\ninclude", 1)
OFTEN = (
    RUN + "utils.CheckpointConfig.save = @often/utils.SaveCheckpointConfig()\n"
    "often/utils.SaveCheckpointConfig.period = 500\n"
)
FILES = {
    "theirs/__init__.py": "",
    "theirs/runs/x.gin": "\ninclude 'theirs/runs/gone.gin'\n",
    "conf/a.gin": "include 'b.gin'\n",
    "conf/b.gin": "",
    "circle/a.gin": "include 'circle/b.gin'\n",
    "circle/b.gin": "\ninclude 'circle/a.gin'\n",
    "required.gin": "BATCH_SIZE = %gin.REQUIRED\n",
    "mine.py": "class Logger:\n    pass\n",
    "one/__init__.py": "",
    "one/tasks.py": "def f(a=1): ...\n",
    "two/__init__.py": "",
    "two/tasks.py": "def g(b=1): ...\n",
    "t5y/__init__.py": "",  # a name close to t5's
}


@pytest.mark.parametrize(
    ("gin", "place", "message", "fix"),
    [
        (RUN + "BATCHSIZE = 4\n", "GIN01 warning 10", "nothing reads the macro BATCHSIZE, so BATCH_SIZE stays 128",
         "did you mean BATCH_SIZE? Write BATCH_SIZE = 4"),
        (RUN + "NUM_EMBEDDINGS = 9\n", "GIN02 warning 10", "nothing reads the macro NUM_EMBEDDINGS = 9",
         "remove it, or use %NUM_EMBEDDINGS in the parameter that it is meant for"),
        (RUN + "trian/utils.DatasetConfig.pack = False\n", "GIN06 warning 10",
         "nothing opens the scope trian, so trian/utils.DatasetConfig.pack has no effect", "did you mean train/?"),
        (RUN + "MODEL_DIR = gs://bkt/x\n", "GIN07 error 10",
         "cannot parse `MODEL_DIR = gs://bkt/x`: not a Python literal",
         "a string needs quotes: MODEL_DIR = 'gs://bkt/x'"),
        (RUN + "SHUFFLE_TRAIN_EXAMPLES = false\n", "GIN07 error 10",
         "cannot parse `SHUFFLE_TRAIN_EXAMPLES = false`: not a Python literal", "write SHUFFLE_TRAIN_EXAMPLES = False"),
        (RUN + "include t5x/configs/runs/eval.gin\n", "GIN07 error 10",
         "cannot parse `include t5x/configs/runs/eval.gin`: not a Python literal",
         "an include is followed by a file name in quotes: include 'path/file.gin'"),
        (RUN + "X = {'a': 1,\n", "GIN07 error 10", "cannot parse `X = {'a': 1,`: EOF in multi-line statement",
         "close the bracket that is opened in this statement"),
        (RUN + "LENGTHS = dict(inputs=128, targets=32)\n", "GIN07 error 10",
         "cannot parse `LENGTHS = dict(inputs=128, targets=32)`: not a Python literal",
         "gin calls no functions: write {'inputs': 128, 'targets': 32}"),
        (RUN + "MODEL_DIR = f'gs://b/{x}'\n", "GIN07 error 10",
         "cannot parse `MODEL_DIR = f'gs://b/{x}'`: not a Python literal",
         "gin has no f-strings: write the whole string, or pass --gin.MODEL_DIR=\"'...'\" where it is known"),
        (RUN + "EVAL_PERIOD = 10 * 100\n", "GIN07 error 10", "cannot parse `EVAL_PERIOD = 10 * 100`: Expected newline",
         "gin does not calculate: write the result as one number"),
        (RUN + "include 't5x/examples/t5/t5_1_1/c4_pretrain_small.gin'\n", "GIN16 error 10",
         "there is no gin file t5x/examples/t5/t5_1_1/c4_pretrain_small.gin; searched: ., the folder of t5x",
         "did you mean 't5x/examples/t5/t5_1_1/examples/small_c4_pretrain.gin'? Or install T5X from its git "
         "repository if the file is one that the embedded runtime does not have"),
        (RUN + "train/utils.DatasetConfig.batch_size = BATCH_SIZE\n", "GIN19 error 10",
         "cannot parse `train/utils.DatasetConfig.batch_size = BATCH_SIZE`: a macro is read with %",
         "write train/utils.DatasetConfig.batch_size = %BATCH_SIZE"),
        (RUN + "train/utils.DatasetConfig.batch_size = '16'\n", "GIN08 error 10",
         "train/utils.DatasetConfig.batch_size = '16' is a string, and a number is needed",
         "take the quotes away: train/utils.DatasetConfig.batch_size = 16"),
        (RUN + "utils.SaveCheckpointConfig.period = 1e3\n", "GIN09 warning 10",
         "utils.SaveCheckpointConfig.period = 1000.0 is a float, and a whole number is needed",
         "write utils.SaveCheckpointConfig.period = 1_000"),
        ("import seqio\n" + RUN, "GIN11 error 2", "dynamic registration is switched on after import seqio",
         "move `from __gin__ import dynamic_registration` above all other imports of the file"),
        (RUN + "train/utils.DatasetConfig.bach_size = 8\n", "GIN13 error 10",
         "utils.DatasetConfig has no parameter bach_size; did you mean batch_size?",
         "write train/utils.DatasetConfig.batch_size"),
        (RUN + "train/utils.DatasetConfg.batch_size = 8\n", "GIN14 error 10",
         "t5x.utils has no DatasetConfg; did you mean DatasetConfig?", "check its spelling"),
        (RUN + "train_script.trian.eval_steps = 8\n", "GIN14 error 10",
         "T5X's binaries have no trian; did you mean train?", "they have train, evaluate, infer"),
        (RUN + "import my_own_tasks\n", "GIN15 error 10", "there is no module my_own_tasks",
         "install it, or add its folder to python_path (searched: ., and the installed packages)"),
        (RUN + "from t5x.examples.t5 import netwrok\n", "GIN15 error 10", "there is no module t5x.examples.t5.netwrok",
         "the embedded runtime does not have it: install T5X from its git repository"),
        (RUN + "EVAL_STEPS = %BATCHSIZE\n", "GIN18 error 10",
         "nothing defines the macro BATCHSIZE that EVAL_STEPS reads; did you mean BATCH_SIZE?",
         "correct the name in EVAL_STEPS"),
        (RUN + "train_script.train.partitioner = @utils.CheckpointConfig\n", "GIN20 error 10",
         "train_script.train.partitioner = @utils.CheckpointConfig is not called, and an object is needed",
         "add (): train_script.train.partitioner = @utils.CheckpointConfig()"),
        (RUN + "train_script.train.train_state_initializer_cls = @utils.TrainStateInitializer()\n", "GIN20 error 10",
         "train_script.train.train_state_initializer_cls = @utils.TrainStateInitializer() is called, and the class "
         "itself is needed",
         "take the () away: train_script.train.train_state_initializer_cls = @utils.TrainStateInitializer"),
        (RUN + "partitioning.PjitPartitioner:\n  num_partitions = 1\n  backend = None\n", "GIN29 error 10",
         "partitioning in partitioning.PjitPartitioner is not imported in this file",
         "add `from t5x import partitioning` to run.gin"),
        (RUN + "train_script.train.eval_period = 300\n", "MSH12 error 10", "the checkpoint period 1000 "
         "(utils.SaveCheckpointConfig.period) is not a multiple of the eval period 300 "
         "(train_script.train.eval_period, run.gin:10)", "make it a multiple of 300, such as 900 or 1200"),
        ("include 'conf/a.gin'\n", "GIN16 error 1 > conf/a.gin:1",
         "there is no gin file b.gin; searched: ., the folder of t5x",
         "it lies beside the file that includes it: pass --gin_search_paths=conf"),
        (ABOVE, "GIN04 warning 4",
         "BATCH_SIZE = 7 is lost: the include in line 6 sets it to 128 (t5x/configs/runs/pretrain.gin:20)",
         "move the binding below line 6"),
        (RUN + "utils.DatasetConfig.batch_size = 9\n", "GIN05 warning 10", "utils.DatasetConfig.batch_size = 9 has "
         "no effect: train/utils.DatasetConfig.batch_size = %BATCH_SIZE (t5x/configs/runs/pretrain.gin:57) is more "
         "specific", "bind it in the scope that is used (train, train_eval): train/utils.DatasetConfig.batch_size = 9"),
        (RUN.replace(f"include '{TINY}'\n", ""), "GIN18 error 4",
         "nothing defines the macro MODEL that train_script.train.model reads (t5x/configs/runs/pretrain.gin:29)",
         "include a model's gin file, such as 't5x/examples/t5/t5_1_1/small.gin'"),
        ("utils.SaveCheckpointConfig.period = 50\n" + INCLUDES, "GIN10 error 1",
         "no configurable matches utils.SaveCheckpointConfig here: nothing that was read before has registered it",
         "begin the file with `from __gin__ import dynamic_registration` and `from t5x import utils`"),
        (f"{RUN}utils.f.x = 1\n", "GIN14 error 10", "t5x.utils has no f", "check its spelling"),
        (f"include '{TINY}'\n", "GIN31 error 1",
         "this is not a run config: it binds none of T5X's functions train, evaluate and infer",
         "include a run file ('t5x/configs/runs/pretrain.gin', finetune.gin, eval.gin or infer.gin), or name it as "
         "one of several gin files of a run"),
        (DYNAMIC + "import __main__ as e\ne.evaluate.model = None\n", "GIN31 error 3",
         "evaluate needs dataset_cfg, restore_checkpoint_cfg, partitioner, output_dir, and nothing binds them",
         "bind evaluate.dataset_cfg = @utils.DatasetConfig(), evaluate.restore_checkpoint_cfg = "
         "@utils.RestoreCheckpointConfig(), evaluate.partitioner = @partitioning.PjitPartitioner(), "
         "evaluate.output_dir, or include the run file that does"),
        (f"{RUN}import flaxformer.components\n", "GIN15 error 10",
         "there is no module flaxformer (for flaxformer.components)",
         "install it: python -m pip install git+https://github.com/google/flaxformer"),
        ("include 't5x/configs/runs/pretrain_deterministic.gin'\n", "GIN16 error 1",
         "there is no gin file t5x/configs/runs/pretrain_deterministic.gin; searched: ., the folder of t5x",
         "T5X has no such file: include 't5x/configs/runs/pretrain.gin' and set train/utils.DatasetConfig.seed = "
         "42, RANDOM_SEED = 42 and utils.SaveCheckpointConfig.save_dataset = True"),
        ("include 'circle/a.gin'\n", "GIN32 error 1 > circle/a.gin:1 > circle/b.gin:2",
         "including circle/a.gin here never ends: run.gin -> circle/a.gin -> circle/b.gin -> circle/a.gin",
         "remove this include"),
        (RUN + "BATCH_SIZE = '16'\n", "GIN08 error 10", "BATCH_SIZE = '16' is a string, and a number is needed "
         "(read by train/utils.DatasetConfig.batch_size in t5x/configs/runs/pretrain.gin:57)",
         "take the quotes away: BATCH_SIZE = 16"),
        ("include 'theirs/runs/x.gin'\n", "GIN17 error 1 > theirs/runs/x.gin:2",
         "theirs/runs/x.gin includes theirs/runs/gone.gin, which the package theirs does not have",
         "copy x.gin and change the include in the copy, or use a version of theirs that has the file"),
        (RUN + "BATCH_SIZE = %gin.REQUIRED\nBATCH_SIZE = 8\n", "GIN21 note 10",
         "BATCH_SIZE is declared gin.REQUIRED here and bound to 8 in line 11: it is not required",
         "remove one of the two"),
        (EVAL.replace("DROPOUT_RATE = 0.0\n", ""), "GIN27 error 5", "DROPOUT_RATE is gin.REQUIRED and nothing "
         "gives it a value; eval runs do not use it, but Gin wants one (t5x/examples/t5/t5_1_1/base.gin:15)",
         "bind DROPOUT_RATE = 0.0 below the includes, or pass --gin.DROPOUT_RATE=0.0"),
        (NESTED, "GIN30 error 10", "@big/train/utils.DatasetConfig() does not take the bindings of "
         "train/utils.DatasetConfig (t5x/configs/runs/pretrain.gin:62), so the call lacks mixture_or_task_name, "
         "task_feature_lengths, split, batch_size, shuffle, seed",
         "write @train/utils.DatasetConfig(), or bind them in big/train/"),
        (NESTED + BIG, "GIN30 warning 10", "@big/train/utils.DatasetConfig() does not take the bindings of "
         "train/utils.DatasetConfig (t5x/configs/runs/pretrain.gin:62), so these keep their defaults: use_cached, "
         "pack, module", "write @train/utils.DatasetConfig(), or bind them in big/train/"),
        (EVALUATED, "AUX03 warning 10", "train_script.train.infer_eval_dataset_cfg is evaluated, and "
         "seqio.Evaluator.logger_cls is empty: the metrics are written nowhere",
         "bind seqio.Evaluator.logger_cls = [@seqio.PyLoggingLogger, @seqio.TensorBoardLogger, @seqio.JSONLogger]"),
        (EVAL + LOGGERS + "[@seqio.JSONLogger]\n", "AUX03 note 10",
         "seqio.Evaluator.logger_cls has no logger for TensorBoard: the metrics do not appear there",
         "add @seqio.TensorBoardLogger"),
        (CONTROLLED, "AUX04 warning 10",
         "nothing reads INITIAL_CHECKPOINT_PATH: the checkpoint of CHECKPOINT_PATH = 'gs://bkt/checkpoint_10' is used",
         "write CHECKPOINT_PATH = %INITIAL_CHECKPOINT_PATH, or remove INITIAL_CHECKPOINT_PATH"),
        (GIN.replace("v/gin.singleton.", "v/gin.singletn."), "GIN14 error 15",
         "gin has no singletn; did you mean singleton?", "it has macro, constant, singleton"),
        (GIN + "v/gin.singleton.maker = 1\n", "GIN13 error 18", "gin.singleton has no parameter maker",
         "it has constructor"),
        (GIN + "gin.config.singleton.constructor = 1\n", "GIN14 error 18", "gin has no config",
         "it has macro, constant, singleton"),
        (MINE + RUN.replace("from __gin__", "#", 1), "GIN10 error 2",
         "no configurable matches mine.make_vocabulary here: nothing that was read before has registered it",
         "begin the file with `from __gin__ import dynamic_registration` and import the module of this name"),
        (f"{RUN}train/utils.DatasetConfig.seed = %gin.REQUIRD\n", "GIN18 error 10", "nothing defines the macro "
         "gin.REQUIRD that train/utils.DatasetConfig.seed reads; did you mean gin.REQUIRED?",
         "correct the name in train/utils.DatasetConfig.seed"),
        (f"{RUN}from one import tasks\nfrom two import tasks\ntasks.f.a = 3\n", "GIN14 error 12",
         "two.tasks has no f: run.gin:11 imports two.tasks as tasks, which run.gin:10 has imported one.tasks as",
         "import one of the two under another name: from two import tasks as two_tasks"),
        (RUN + "import t5.data.mixtures\n", "GIN15 warning 10",
         f"there is no module t5 (for t5.data.mixtures){STANDINS_OF_T5}", f"install it: {INSTALL_T5}"),
        (RUN + "import t5.data.preprocessors\n", "GIN15 error 10",
         "there is no module t5 (for t5.data.preprocessors)", f"install it: {INSTALL_T5}"),
        (RUN + "TASK_FEATURE_LENGTHS = {'inputs': '128', 'targets': 8}\n", "GIN08 error 10",
         "TASK_FEATURE_LENGTHS['inputs'] = '128' is a string, and a number is needed (read by "
         "train/utils.DatasetConfig.task_feature_lengths in t5x/configs/runs/pretrain.gin:55)",
         "take the quotes away: TASK_FEATURE_LENGTHS['inputs'] = 128"),
        (RUN + "utils.SaveCheckpointConfig:\n  keep = 2\n  keep = 3\n", "GIN34 warning 11",
         "utils.SaveCheckpointConfig.keep = 2 is bound again in line 12, to 3", "remove one of the two"),
        (RUN + "BATCH_SIZE = 8\ntrain/utils.DatasetConfig.batch_size = 16\n"
         "train_eval/utils.DatasetConfig.batch_size = 16\n", "GIN02 warning 10", "nothing reads the macro BATCH_SIZE = "
         "8: train/utils.DatasetConfig.batch_size, which read it, is 16 (run.gin:11)",
         "remove it, or use %BATCH_SIZE in train/utils.DatasetConfig.batch_size"),
    ],
)  # fmt: skip
def test_place_message_and_fix(folder: Folder, gin: str, place: str, message: str, fix: str) -> None:
    folder.write(FILES)
    assert folder.said(gin, place, ignore=()) == (message, fix)


@pytest.mark.parametrize(
    ("gin", "found"),
    [
        (RUN.replace("include", "BATCH_SIZE = 128\ninclude", 1), ""),
        (RUN + "utils.DatasetConfig.num_workers = 2\n", ""),
        (INCLUDES + "utils.SaveCheckpointConfig.period = 50\n", "error GIN03, error GIN03, error GIN03, error GIN03"),
        ("include 'theirs/runs/x.gin'\n", "error GIN17"),
        ("include 'theirs/runs/gone.gin'\n", "error GIN16"),
        (RUN + "include 'required.gin'\nBATCH_SIZE = 8\n", ""),
        (EVAL.replace("DROPOUT_RATE = 0.0\n", ""), "error GIN27"),
        (RUN.replace("DROPOUT_RATE = 0.0\n", ""), "error GIN03"),
        (RUN + NESTED_SAVE + "a/b/utils.SaveCheckpointConfig.keep = 5\n", ""),
        (EVALUATED + f"import seqio\n{LOGGERS}[@seqio.TensorBoardLogger]\n", "note GIN38"),
        (PREEMPTIBLE + "trainer.Trainer.num_microbatches = 4\n", ""),
        (EVAL + LOGGERS + "[]\n", "warning AUX03"),
        (OTHER_LOGGER + "[@mine.Logger, @seqio.JSONLogger]\n", ""),
        (CONTROLLED, "warning AUX04"),
        (CONTROLLED + "CHECKPOINT_PATH = %INITIAL_CHECKPOINT_PATH\n", ""),
        (RUN + "TRAIN_STEPS = 500,\n", "error GIN07"),
        (ABOVE + "utils.DatasetConfig.batch_size = 9\ntrian/utils.DatasetConfig.pack = False\n",
         "warning GIN04, warning GIN05, warning GIN06"),
        (OFTEN, ""),
        (OFTEN + "utils.SaveCheckpointConfig.period = 100\n", "warning GIN05"),
        (RUN.replace("include", "utils.DatasetConfig.batch_size = 9\ninclude", 1), "warning GIN05"),
        (GIN, ""),
        (RUN + "BATCHSIZE = 3\nTRAIN_STEPS = 1.5\nimport gone\n", "error GIN09, error GIN15, warning GIN01"),
    ],
)  # fmt: skip
def test_everything_that_is_found(folder: Folder, gin: str, found: str) -> None:
    folder.write(FILES)
    assert folder.codes(gin) == found


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


def test_names_that_the_users_own_modules_may_register_are_not_judged(folder: Folder) -> None:
    folder.write({"my_tasks.py": "import my_registry\n", "my_registry.py": "import gin\n"})
    result = folder.lint("import my_tasks\n" + "make_vocabulary.size = 3\n" + RUN.replace("from __gin__", "#", 1))
    assert not any("make_vocabulary" in f.message for f in result.findings)
    assert any("make_vocabulary" in text and "my_tasks" in text for text in result.not_checked)


def test_names_are_not_judged_where_a_module_cannot_be_found(folder: Folder) -> None:
    folder.write({"mine.py": "import a_package_that_is_not_here\n"})
    not_checked = folder.lint(MINE + RUN.replace("from __gin__", "#", 1)).not_checked
    assert not_checked[0].startswith("whether mine.make")


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
    ]  # reported once for each module in a file


@pytest.mark.parametrize(
    ("binding", "place", "message", "fix"),
    [
        ("train_script.train.eval_period = 5", "GIN28 error --gin bindings:2",
         "no configurable matches train_script.train: train_script is an alias inside gin files only",
         "leave the alias out: --gin.train.PARAMETER=VALUE"),
        ("MODEL_DIR = gs://bkt/x", "GIN07 error --gin bindings:2",
         "cannot parse `MODEL_DIR = gs://bkt/x`: not a Python literal",
         "a string needs quotes: --gin.MODEL_DIR=\"'gs://bkt/x'\""),
        ("TRAIN_STEPS = 500,", "VTX07 error --gin bindings:2",
         "cannot parse `TRAIN_STEPS = 500,`: , belongs to the list that the flag stands in",
         "write --gin.TRAIN_STEPS=500 and close its quotes before the comma"),
    ],
)  # fmt: skip
def test_bindings_of_the_command_line(folder: Folder, binding: str, place: str, message: str, fix: str) -> None:
    assert folder.said(RUN, place, bindings=["X = 1", binding]) == (message, fix)


@pytest.mark.parametrize(
    ("binding", "found"),
    [
        ("train.eval_period = 5", ""),
        ('TRAIN_STEPS = 500",', "error VTX07"),
        ("TRAIN_STEPS = x,", "error GIN07"),
    ],
)
def test_other_bindings_of_the_command_line(folder: Folder, binding: str, found: str) -> None:
    assert folder.codes(RUN, bindings=[binding]) == found


def test_the_wrong_mode_is_told_by_the_function(folder: Folder) -> None:
    finding = folder.only(RUN, "GIN12", mode=Mode.EVAL)
    assert finding.message.startswith(
        "train_script.train.model is for train runs (train), and eval was asked for (t5x/"
    )
    assert finding.fix == "run it with --run_mode=train, or include the run file for eval"


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


def test_without_stand_ins_the_package_t5_is_missing(folder: Folder) -> None:
    said = folder.said(f"{RUN}import t5.data.mixtures\n", "GIN15 error 10", standins=StandInPolicy.OFF)
    assert said == ("there is no module t5 (for t5.data.mixtures)", f"install it: {INSTALL_T5}")


def test_a_file_that_the_user_named_has_no_line(folder: Folder) -> None:
    result = lint(RunSpec(("gone.gin",), cwd=str(folder.path)))
    assert [(f.code, f.location) for f in result.errors] == [("GIN16", None)]
    assert result.outcome is Outcome.FAILED


def test_a_folder_without_init_stops_gin_before_the_search_paths(folder: Folder) -> None:
    folder.write({"conf/other.gin": "", "there/conf/x.gin": "X = 1\n"})
    message, _ = folder.said("include 'conf/x.gin'\n", "GIN16 error 1", search_paths=("there",))
    assert message == (
        "Gin cannot open conf/x.gin: before there/conf/x.gin it looks into the folder conf, which has no __init__.py, "
        "and stops there (expected str, bytes or os.PathLike object, not NoneType)"
    )


def test_all_syntax_errors_are_shown_in_one_reading(folder: Folder) -> None:
    gin = "A = x\nB = 1\nC = $\nutils.X:\n  y = z\nD = 2\n"
    found = [f for f in folder.findings(gin) if f.code == "GIN07"]
    assert [f.location.line for f in found if f.location] == [1, 3, 5]
    assert set(folder.read(gin).macros) == {"B", "D"}


def test_what_needs_the_whole_config_is_left_out_and_said(folder: Folder) -> None:
    result = folder.lint(RUN + "BATCHSIZE = 3\ninclude 'gone.gin'\n")
    assert {f.code for f in result.findings} == {"GIN16"}
    assert any("GIN01, GIN02, GIN03" in text for text in result.not_checked)


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


def test_a_file_of_t5x_that_is_given_later_overrides_the_users(folder: Folder) -> None:
    folder.write({"mine.gin": "BATCH_SIZE = 7\nTRAIN_STEPS = 3\n", "more.gin": "DROPOUT_RATE = 0.1\n"})
    files = ("mine.gin", "more.gin", TINY, PRETRAIN)
    spec = RunSpec(files, ("TRAIN_STEPS = 5", "DROPOUT_RATE = 0.1"), cwd=str(folder.path))
    (found,) = [f for f in lint(spec).findings if f.code == "GIN04"]
    assert found.location == Location("mine.gin", 1)
    assert found.message.startswith("BATCH_SIZE = 7 is lost: ")
    assert "pretrain.gin, which is given after mine.gin, sets it to 128" in found.message
    assert found.fix is not None
    assert found.fix.startswith("give mine.gin after ")
    turned = RunSpec((TINY, PRETRAIN, "mine.gin", "more.gin"), spec.bindings, cwd=str(folder.path))
    assert not [f for f in lint(turned).findings if f.code == "GIN04"]


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


def test_a_broken_config_of_t5x_is_not_the_users_fault(folder: Folder) -> None:
    name = "t5x/configs/runs/broken.gin"
    folder.write(
        {f"fork/{n}": "" for n in ("t5x/__init__.py", "t5x/configs/__init__.py", "t5x/configs/runs/__init__.py")}
    )
    folder.write({f"fork/{name}": "include 't5x/configs/runs/pretrain_deterministic.gin'\n"})
    found = lint(folder.spec(f"include '{name}'\n"), t5x_parent=folder.path / "fork").findings
    assert [f.code for f in found] == ["GIN17"]


def test_run_files_of_two_binaries(folder: Folder) -> None:
    folder.write({"train.gin": RUN, "eval.gin": EVAL})
    spec = RunSpec(("train.gin", "eval.gin"), mode=Mode.EVAL, cwd=str(folder.path))
    found = [f for f in lint(spec).findings if f.code in ("AUX02", "GIN12")]
    assert [f.code for f in found] == ["AUX02"]
    assert found[0].message.startswith(
        "train_script.train.model is for train runs, and this config binds eval as well: no binary has both (t5x/"
    )
    assert found[0].location == Location("train.gin", 5)


def test_bindings_that_a_controller_would_drop(folder: Folder) -> None:
    gin = EVAL + "CHECKPOINT_PATH = %INITIAL_CHECKPOINT_PATH\n"
    given = ["INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_20'", "EVAL_OUTPUT_DIR = '/o'", "DROPOUT_RATE = 0.1"]
    finding = folder.only(gin, "AUX05", bindings=given)
    assert (finding.severity, finding.location) == (Severity.NOTE, Location("--gin bindings", 3))
    assert folder.findings(EVAL, bindings=["DROPOUT_RATE = 0.1"]) == []


@pytest.mark.parametrize("value", ["@utils.gone", "{'': @utils.gone, '': 1}"])
def test_an_unknown_name_in_a_block_is_reported_once_at_its_own_line(folder: Folder, value: str) -> None:
    """Gin looks up a reference even if a later item of the dict has the same key, and so replaces it."""
    found = folder.findings(
        f"{RUN}utils.SaveCheckpointConfig:\n  keep = 1\n  period = 10\n  checkpoint_manager_cls = {value}\n"
    )
    names = [(f.location and f.location.line, f.message) for f in found if f.code != "GIN37"]  # a dict is no class
    assert names == [(13, "t5x.utils has no gone")]
