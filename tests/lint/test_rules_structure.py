"""How a config is put together: packages, required values, nested scopes, evaluators, auxiliary jobs."""

from __future__ import annotations

from linting import RUN, T5X, TINY, Folder

from t5x_harness.lint import lint
from t5x_harness.spec import Location, Mode, RunSpec, Severity

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


def codes(folder: Folder, gin: str, **fields: object) -> list[str]:
    return [f.code for f in folder.findings(gin, **fields)]


def test_a_package_that_lacks_a_file_is_told_from_a_wrong_name(folder: Folder) -> None:
    folder.write({"theirs/__init__.py": "", "theirs/runs/x.gin": "\ninclude 'theirs/runs/gone.gin'\n"})
    finding = folder.only("include 'theirs/runs/x.gin'\n", "GIN17")
    assert finding.message == "theirs/runs/x.gin includes theirs/runs/gone.gin, which the package theirs does not have"
    assert finding.location == Location("theirs/runs/x.gin", 2, (Location("run.gin", 1),))
    assert finding.fix == "copy x.gin and change the include in the copy, or use a version of theirs that has the file"
    assert "GIN16" not in codes(folder, "include 'theirs/runs/x.gin'\n")
    assert "GIN16" in codes(folder, "include 'theirs/runs/gone.gin'\n")


def test_a_broken_config_of_t5x_is_not_the_users_fault(folder: Folder) -> None:
    name = "t5x/configs/runs/broken.gin"
    folder.write(
        {f"fork/{n}": "" for n in ("t5x/__init__.py", "t5x/configs/__init__.py", "t5x/configs/runs/__init__.py")}
    )
    folder.write({f"fork/{name}": "include 't5x/configs/runs/pretrain_deterministic.gin'\n"})
    found = lint(folder.spec(f"include '{name}'\n"), t5x_parent=folder.path / "fork").findings
    assert [f.code for f in found] == ["GIN17"]


def test_a_required_macro_that_is_given_in_the_same_file_is_noted(folder: Folder) -> None:
    finding = folder.only(RUN + "BATCH_SIZE = %gin.REQUIRED\nBATCH_SIZE = 8\n", "GIN21")
    assert finding.message == ("BATCH_SIZE is declared gin.REQUIRED here and bound to 8 in line 11: it is not required")
    assert (finding.severity, finding.location) == (Severity.NOTE, Location("run.gin", 10))
    folder.write({"base.gin": "BATCH_SIZE = %gin.REQUIRED\n"})
    assert codes(folder, RUN + "include 'base.gin'\nBATCH_SIZE = 8\n") == []


def test_dropout_is_asked_for_where_nobody_drops_out(folder: Folder) -> None:
    gin = EVAL.replace("DROPOUT_RATE = 0.0\n", "")
    finding = folder.only(gin, "GIN27")
    assert finding.message.startswith(
        "DROPOUT_RATE is gin.REQUIRED and nothing gives it a value; eval runs do not use it, but Gin wants one (t5x/"
    )
    assert finding.fix == "bind DROPOUT_RATE = 0.0 below the includes, or pass --gin.DROPOUT_RATE=0.0"
    assert codes(folder, gin) == ["GIN27"]
    assert codes(folder, RUN.replace("DROPOUT_RATE = 0.0\n", "")) == ["GIN03"]


def test_a_nested_scope_loses_what_the_inner_one_binds(folder: Folder) -> None:
    use = "train_script.train.train_dataset_cfg = @big/train/utils.DatasetConfig()\n"
    finding = folder.only(RUN + use, "GIN30")
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith(
        "@big/train/utils.DatasetConfig() does not take the bindings of train/utils.DatasetConfig ("
    )
    assert finding.message.endswith(
        "so the call lacks mixture_or_task_name, task_feature_lengths, split, batch_size, shuffle, seed"
    )
    assert finding.fix == "write @train/utils.DatasetConfig(), or bind them in big/train/"
    required = "mixture_or_task_name = 'x'\n  task_feature_lengths = None\n  split = 'train'\n  batch_size = 8"
    given = f"big/utils.DatasetConfig:\n  {required}\n  shuffle = True\n  seed = None\n"
    finding = folder.only(RUN + use + given, "GIN30")
    assert finding.severity is Severity.WARNING
    assert finding.message.endswith("so these keep their defaults: use_cached, pack, module")


def test_a_nested_scope_that_is_bound_on_its_own_is_fine(folder: Folder) -> None:
    gin = RUN + "utils.CheckpointConfig.save = @a/b/utils.SaveCheckpointConfig()\n"
    assert codes(folder, gin + "a/b/utils.SaveCheckpointConfig.keep = 5\n") == []


def test_an_evaluation_without_loggers_is_lost(folder: Folder) -> None:
    gin = RUN + "train_script.train.infer_eval_dataset_cfg = @train_eval/utils.DatasetConfig()\n"
    finding = folder.only(gin, "AUX03")
    assert finding.message == (
        "train_script.train.infer_eval_dataset_cfg is evaluated, and seqio.Evaluator.logger_cls is empty: the metrics "
        "are written nowhere"
    )
    assert (finding.severity, finding.location) == (Severity.WARNING, Location("run.gin", 10))
    fixed = gin + "import seqio\nseqio.Evaluator.logger_cls = [@seqio.TensorBoardLogger]\n"
    assert codes(folder, fixed) == []


def test_an_evaluation_without_tensorboard_is_noted(folder: Folder) -> None:
    finding = folder.only(EVAL + "seqio.Evaluator.logger_cls = [@seqio.JSONLogger]\n", "AUX03")
    assert (finding.severity, finding.fix) == (Severity.NOTE, "add @seqio.TensorBoardLogger")
    assert folder.only(EVAL + "seqio.Evaluator.logger_cls = []\n", "AUX03").severity is Severity.WARNING
    # Another class may write to TensorBoard as well.
    folder.write({"mine.py": "class Logger:\n    pass\n"})
    gin = EVAL.replace("import seqio\n", "import seqio\nimport mine\n")
    assert codes(folder, gin + "seqio.Evaluator.logger_cls = [@mine.Logger, @seqio.JSONLogger]\n") == []


def test_run_files_of_two_binaries(folder: Folder) -> None:
    folder.write({"train.gin": RUN, "eval.gin": EVAL})
    spec = RunSpec(("train.gin", "eval.gin"), mode=Mode.EVAL, cwd=str(folder.path))
    found = [f for f in lint(spec, t5x_parent=T5X).findings if f.code in ("AUX02", "GIN12")]
    assert [f.code for f in found] == ["AUX02"]
    assert found[0].message.startswith(
        "train_script.train.model is for train runs, and this config binds eval as well: no binary has both (t5x/"
    )
    assert found[0].location == Location("train.gin", 5)


def test_the_controllers_checkpoint_has_to_be_read(folder: Folder) -> None:
    gin = EVAL + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_20'\n"
    finding = folder.only(gin, "AUX04")
    assert finding.message == (
        "nothing reads INITIAL_CHECKPOINT_PATH: the checkpoint of CHECKPOINT_PATH = 'gs://bkt/checkpoint_10' is used"
    )
    assert finding.fix == "write CHECKPOINT_PATH = %INITIAL_CHECKPOINT_PATH, or remove INITIAL_CHECKPOINT_PATH"
    assert codes(folder, gin) == ["AUX04"]
    assert codes(folder, gin + "CHECKPOINT_PATH = %INITIAL_CHECKPOINT_PATH\n") == []


def test_bindings_that_a_controller_would_drop(folder: Folder) -> None:
    gin = EVAL + "CHECKPOINT_PATH = %INITIAL_CHECKPOINT_PATH\n"
    given = ["INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_20'", "EVAL_OUTPUT_DIR = '/o'", "DROPOUT_RATE = 0.1"]
    finding = folder.only(gin, "AUX05", bindings=given)
    assert (finding.severity, finding.location) == (Severity.NOTE, Location("--gin bindings", 3))
    assert codes(folder, EVAL, bindings=["DROPOUT_RATE = 0.1"]) == []


def test_a_comma_of_the_argument_list_is_recognised(folder: Folder) -> None:
    finding = folder.only(RUN, "VTX07", bindings=["TRAIN_STEPS = 500,"])
    assert finding.message == "cannot parse `TRAIN_STEPS = 500,`: , belongs to the list that the flag stands in"
    assert finding.fix == "write --gin.TRAIN_STEPS=500 and close its quotes before the comma"
    assert codes(folder, RUN, bindings=['TRAIN_STEPS = 500",']) == ["VTX07"]
    assert codes(folder, RUN + "TRAIN_STEPS = 500,\n") == ["GIN07"]
    assert codes(folder, RUN, bindings=["TRAIN_STEPS = x,"]) == ["GIN07"]


def test_silent_mistakes_leave_the_stage_passed(folder: Folder) -> None:
    gin = RUN.replace("include", "BATCH_SIZE = 7\ninclude", 1) + "utils.DatasetConfig.batch_size = 9\n"
    found = folder.findings(gin + "trian/utils.DatasetConfig.pack = False\n")
    assert {f.code: f.severity for f in found} == dict.fromkeys(("GIN04", "GIN05", "GIN06"), Severity.WARNING)


def test_a_scoped_binding_below_a_general_one_refines_it(folder: Folder) -> None:
    use = "utils.CheckpointConfig.save = @often/utils.SaveCheckpointConfig()\n"
    refined = "often/utils.SaveCheckpointConfig.period = 500\n"
    assert codes(folder, RUN + use + refined) == []
    assert codes(folder, RUN + use + refined + "utils.SaveCheckpointConfig.period = 100\n") == ["GIN05"]
    above = RUN.replace("include", "utils.DatasetConfig.batch_size = 9\ninclude", 1)
    assert codes(folder, above) == ["GIN05"]


def test_what_gin_itself_provides_is_known(folder: Folder) -> None:
    gin = RUN.replace(
        "import utils\n", "import utils\nfrom t5x import models\nfrom gin import config\nimport seqio\n"
    ) + (
        "models.EncoderDecoderModel.input_vocabulary = @v/gin.singleton()\n"
        "models.EncoderDecoderModel.output_vocabulary = @v/config.singleton()\n"
        "v/gin.singleton.constructor = @seqio.ByteVocabulary\n"
        "BATCH_SIZE/gin.macro.value = 8\n"
        "train_script.train.eval_steps = @gin.constant()\n"
    )
    assert folder.findings(gin) == []
    assert folder.only(gin.replace("v/gin.singleton.", "v/gin.singletn."), "GIN14").message == (
        "gin has no singletn; did you mean singleton?"
    )
    assert folder.only(gin + "v/gin.singleton.maker = 1\n", "GIN13").fix == "it has constructor"
    assert folder.only(gin + "gin.config.singleton.constructor = 1\n", "GIN14").message == "gin has no config"
