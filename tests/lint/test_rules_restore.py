"""What runs restore: path against mode, partial restores, TensorFlow's checkpoints, dtypes."""

from __future__ import annotations

import pytest
from linting import FINETUNE, PRETRAIN, RUN, TINY, Folder

from t5x_harness.spec import Severity, StandInPolicy

CHECKPOINT = "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/checkpoint_50'\n"
TENSORFLOW = "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/model.ckpt-50'\n"
FINE = RUN.replace(PRETRAIN, FINETUNE)
RESTORE = "utils.RestoreCheckpointConfig"
MAP = f"{RESTORE}.assignment_map = ((r'state.*', None),)\n"


def run(mode: str, *lines: str) -> str:
    """A config for eval or infer that restores ``gs://bkt/t5/checkpoint_50``."""
    return "\n".join(
        [
            "from __gin__ import dynamic_registration",
            f"import __main__ as {mode}_script",
            "from t5x import utils",
            f"include '{TINY}'",
            f"include 't5x/configs/runs/{mode}.gin'",
            "CHECKPOINT_PATH = 'gs://bkt/t5/checkpoint_50'",
            "MIXTURE_OR_TASK_NAME = 'my_task'",
            "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}",
            "DROPOUT_RATE = 0.0",
            *lines,
            "",
        ]
    )


def codes(folder: Folder, gin: str) -> list[str]:
    return [f.code for f in folder.findings(gin)]


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("gs://bkt/t5/checkpoint_50", True),
        ("gs://bkt/t5/checkpoint_50/", True),
        ("gs://bkt/t5/model.ckpt-50", True),
        ("gs://bkt/t5", False),
        ("/data/run/", False),
        ("gs://bkt/t5/checkpoint_final", False),
        ("gs://bkt/t5/checkpoint", False),
    ],
)
def test_mode_specific_needs_one_checkpoint(folder: Folder, path: str, right: bool) -> None:
    gin = FINE + f"INITIAL_CHECKPOINT_PATH = '{path}'\n"
    assert ("CKP05" in codes(folder, gin)) is not right


def test_the_folder_of_the_run_is_told_from_a_checkpoint(folder: Folder) -> None:
    finding = folder.only(FINE + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/'\n", "CKP05")
    assert finding.message == (
        "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/' is not a checkpoint: mode 'specific' needs a folder called "
        "checkpoint_STEP"
    )
    assert finding.fix == "name the checkpoint too: 'gs://bkt/t5/checkpoint_STEP'"


@pytest.mark.parametrize("name", ["checkpont_1000000", "chekpoint_1000000", "checkpoint-1000000", "checkpoint1000000"])
def test_a_misspelt_checkpoint_is_named_in_full(folder: Folder, name: str) -> None:
    parent = "gs://acme-nlp/pretrained/models/of/a/long/path/tickets_small"
    finding = folder.only(FINE + f"INITIAL_CHECKPOINT_PATH = '{parent}/{name}'\n", "CKP05")
    assert finding.message.startswith(f"INITIAL_CHECKPOINT_PATH = '{parent}/{name}' is not a checkpoint")
    assert finding.fix == f"did you mean '{parent}/checkpoint_1000000'?"


def test_a_checkpoint_in_mode_latest_would_be_passed_over(folder: Folder) -> None:
    finding = folder.only(RUN + f"{RESTORE}.path = 'gs://bkt/t5/checkpoint_50'\n", "CKP05")
    assert finding.message == (
        f"{RESTORE}.path = 'gs://bkt/t5/checkpoint_50' is one checkpoint, and mode 'latest' looks for checkpoints "
        "inside it: training would start from scratch"
    )
    assert finding.fix == f"bind {RESTORE}.mode = 'specific', or leave /checkpoint_50 out"
    assert codes(folder, RUN + f"{RESTORE}.path = 'gs://bkt/t5'\n") == []


def test_evaluation_in_mode_all_wants_the_folder_and_inference_never_does(folder: Folder) -> None:
    everything = f"{RESTORE}.mode = 'all'"
    assert folder.only(run("eval", everything), "CKP05").message.endswith("inside it: nothing is evaluated")
    assert codes(folder, run("eval", everything, "CHECKPOINT_PATH = 'gs://bkt/t5'")) == []
    assert codes(folder, run("infer", everything)) == []
    assert "CKP05" in codes(folder, run("infer", everything, "CHECKPOINT_PATH = 'gs://bkt/t5'"))


def test_modes_that_do_not_exist_or_not_in_training(folder: Folder) -> None:
    finding = folder.only(FINE + CHECKPOINT + f"{RESTORE}.mode = 'specfic'\n", "CKP19")
    assert (finding.message, finding.fix) == (
        "there is no restore mode 'specfic'",
        f"write {RESTORE}.mode = 'specific'",
    )
    gin = FINE + f"INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5'\n{RESTORE}.mode = 'all'\n"
    assert folder.only(gin, "CKP19").message == "restore mode 'all' is not supported in training"
    assert "CKP19" not in codes(folder, gin + "utils.CheckpointConfig.restore = None\n")


def test_checkpoint_managers_have_to_be_the_same(folder: Folder) -> None:
    (folder.path / "managers.py").touch()
    head = FINE.replace(
        "from t5x import utils\n", "from t5x import checkpoints\nfrom t5x import utils\nimport managers\n"
    )
    save = "utils.SaveCheckpointConfig.checkpoint_manager_cls = @managers.Mine\n"
    restore = f"{RESTORE}.checkpoint_manager_cls = @managers.Mine\n"
    finding = folder.only(head + CHECKPOINT + save, "CKP19")
    assert finding.message == (
        "checkpoints are saved with managers.Mine and restored with t5x.checkpoints.OrbaxCheckpointManagerInterface"
    )
    assert "CKP19" not in codes(folder, head + CHECKPOINT + save + restore)
    default = "utils.SaveCheckpointConfig.checkpoint_manager_cls = @checkpoints.OrbaxCheckpointManagerInterface\n"
    assert "CKP19" not in codes(folder, head + CHECKPOINT + default)


def test_a_fallback_needs_a_map_and_outside_training_a_seed(folder: Folder) -> None:
    fallback = f"{RESTORE}.fallback_to_scratch = True"
    finding = folder.only(FINE + CHECKPOINT + fallback + "\n", "CKP17")
    assert finding.message == (
        f"{RESTORE}.fallback_to_scratch = True needs assignment_map or state_transformation_fns, and neither is bound"
    )
    assert "CKP17" not in codes(folder, FINE + CHECKPOINT + fallback + "\n" + MAP)
    assert "CKP17" not in codes(folder, RUN + fallback + "\n")  # from scratch anyway
    finding = folder.only(run("eval", fallback, MAP), "CKP17")
    assert finding.fix == "bind evaluate.fallback_init_rng = 0"
    assert "CKP17" not in codes(folder, run("eval", fallback, MAP, "eval_script.evaluate.fallback_init_rng = 0"))


def test_a_tensorflow_checkpoint_is_restored_whole_by_its_prefix(folder: Folder) -> None:
    assert codes(folder, FINE + TENSORFLOW) == []
    finding = folder.only(FINE + TENSORFLOW + MAP, "CKP18")
    assert finding.message == (
        f"{RESTORE}.assignment_map is bound, and 'gs://bkt/t5/model.ckpt-50' (INITIAL_CHECKPOINT_PATH) is a TensorFlow "
        "checkpoint, which is only restored as it is"
    )
    finding = folder.only(FINE + TENSORFLOW.replace("-50", "-50.index"), "CKP18")
    assert finding.fix == "leave .index out: 'gs://bkt/t5/model.ckpt-50'"
    finding = folder.only(RUN + f"{RESTORE}.path = 'gs://bkt/t5/model.ckpt-50'\n", "CKP18")
    assert finding.message.endswith("is not a folder, and restore mode 'latest' needs one")


@pytest.mark.parametrize(
    ("binding", "message", "fix"),
    [
        ("utils.SaveCheckpointConfig.dtype = 'fp32'",
         "utils.SaveCheckpointConfig.dtype = 'fp32' is none of 'float32', 'bfloat16' and None",
         "write utils.SaveCheckpointConfig.dtype = 'float32'"),
        ("utils.SaveCheckpointConfig.dtype = 'float16'",
         "utils.SaveCheckpointConfig.dtype = 'float16' is none of 'float32', 'bfloat16' and None",
         "write utils.SaveCheckpointConfig.dtype = 'bfloat16'"),
        (f"{RESTORE}.dtype = 'int8'", f"{RESTORE}.dtype = 'int8' is none of 'float32', 'float16', 'bfloat16' and None",
         "use one of 'float32', 'float16', 'bfloat16'"),
    ],
)  # fmt: skip
def test_dtypes_of_checkpoints(folder: Folder, binding: str, message: str, fix: str) -> None:
    finding = folder.only(RUN + binding + "\n", "CKP20")
    assert (finding.message, finding.fix) == (message, fix)


def test_dtypes_that_are_right_are_left_alone(folder: Folder) -> None:
    for dtype in ("'float16'", "'bfloat16'", "None"):
        assert codes(folder, RUN + f"{RESTORE}.dtype = {dtype}\n") == []


def test_scores_are_noted_where_parameters_are_rounded(folder: Folder) -> None:
    assert codes(folder, run("infer")) == []
    finding = folder.only(run("infer", "infer_script.infer.mode = 'score'"), "INF09")
    assert (finding.severity, finding.fix) == (
        Severity.NOTE,
        "for the scores of training bind utils.RestoreCheckpointConfig.dtype = 'float32'",
    )
    assert codes(folder, run("infer", "infer_script.infer.mode = 'score'", f"{RESTORE}.dtype = 'float32'")) == []


def test_a_missing_checkpoint_is_named_with_those_beside_it_and_not_by_its_step(folder: Folder) -> None:
    """TRAIN_STEPS is below 40, and above the 4 that are meant."""
    folder.write({"model/checkpoint_4/checkpoint": "", "model/checkpoint_20/checkpoint": ""})
    path = f"{folder.path}/model/checkpoint_40"
    found = folder.findings(f"{FINE}INITIAL_CHECKPOINT_PATH = '{path}'\nTRAIN_STEPS = 30\n")
    assert [(f.code, f.message) for f in found if f.code.startswith("CKP0")] == [
        ("CKP04", f"there is no {path}; beside it are checkpoint_4, checkpoint_20")
    ]


def test_what_a_given_bucket_lacks_is_missing(folder: Folder) -> None:
    folder.write({"buckets/mine/other/x": ""})
    text = f"{FINE}INITIAL_CHECKPOINT_PATH = 'ADDRESS/model/checkpoint_40'\n"
    for address, codes in (("gs://mine", ["CKP04"]), ("/gcs/mine", ["CKP04"]), ("gs://theirs", [])):
        found = folder.findings(text.replace("ADDRESS", address), gcs_root="buckets")
        assert [f.code for f in found if f.code == "CKP04"] == codes, address
    everything = folder.findings(text.replace("ADDRESS", "gs://mine"), gcs_root="buckets", standins=StandInPolicy.ALL)
    assert "CKP04" not in {f.code for f in everything}
