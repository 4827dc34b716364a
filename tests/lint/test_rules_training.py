"""Runs that start but are probably not as intended: checkpoints, paths, seeds, schedules, numbers."""

import pytest
from linting import FINETUNE, PRETRAIN, RUN, TINY, Folder

from t5x_harness.spec import Location, StandInPolicy

CHECKPOINT = "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/checkpoint_50'\n"
PUBLIC = "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_1000000'\nTRAIN_STEPS = 1_020_000\n"
TENSORFLOW = "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/model.ckpt-50'\n"
FINE = RUN.replace(PRETRAIN, FINETUNE)
RESTORE = "utils.RestoreCheckpointConfig"
SAVE = "utils.SaveCheckpointConfig"
MAP = f"{RESTORE}.assignment_map = ((r'state.*', None),)\n"
FALLBACK = f"{RESTORE}.fallback_to_scratch = True\n"
SCORES = "infer_script.infer.mode = 'score'\n"
MANAGERS = FINE.replace("import utils\n", "import checkpoints\nfrom t5x import utils\nimport managers\n") + CHECKPOINT
MANAGER = "checkpoint_manager_cls = @managers.Mine\n"
DEFAULT = f"{SAVE}.checkpoint_manager_cls = @checkpoints.OrbaxCheckpointManagerInterface\n"
SEED = "train/utils.DatasetConfig.seed = 42\n"
SEEDED = RUN + SEED + "RANDOM_SEED = 0\nTRAIN_STEPS = 3000\n"
SCHEDULE = "utils.create_learning_rate_scheduler"
LATEST = FINE + f"INITIAL_CHECKPOINT_PATH = 'gs://bkt/run'\n{RESTORE}.mode = 'latest'\nTRAIN_STEPS = 1_010_000\n"
NO_WARMUP = f"{SCHEDULE}.factors = 'constant * linear_warmup'\n{SCHEDULE}.warmup_steps = 0\n"
BASE = FINE.replace("tiny", "base") + "TRAIN_STEPS = 1_020_000\n"
MODEL = "INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/{}/checkpoint_1000000'\n"
NETWORK = RUN.replace("import utils\n", "import utils\nfrom t5x.examples.t5 import network\n") + "network.T5Config."
MESH = RUN.replace("import utils\n", "import utils\nfrom t5x import partitioning\n") + "partitioning.PjitPartitioner."
ADAFACTOR = RUN.replace("import utils\n", "import adafactor\nfrom t5x import utils\n") + "adafactor.Adafactor."
SCALABLE = (
    "from __gin__ import dynamic_registration\nfrom t5x.examples.scalable_t5 import network\n"
    "include 't5x/examples/scalable_t5/t5_1_1/small.gin'\nnetwork.T5Config.remat_policy = "
)


def run(mode: str, lines: str = "", path: str = "gs://bkt/t5/checkpoint_50") -> str:
    """A config for eval or infer that restores a checkpoint."""
    return (
        f"from __gin__ import dynamic_registration\nimport __main__ as {mode}_script\nfrom t5x import utils\n"
        f"include '{TINY}'\ninclude 't5x/configs/runs/{mode}.gin'\nCHECKPOINT_PATH = '{path}'\n"
        "MIXTURE_OR_TASK_NAME = 'my_task'\nTASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\nDROPOUT_RATE = 0.0\n"
        + lines
    )


def model_dir(path: str) -> str:
    return RUN + f"MODEL_DIR = {path!r}\n"


def restored(path: str) -> str:
    return FINE + f"INITIAL_CHECKPOINT_PATH = {path!r}\n"


@pytest.mark.parametrize(
    ("gin", "place", "message", "fix"),
    [
        (restored("gs://bkt/t5/"), "CKP05 error 10", "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/' is not a "
         "checkpoint: mode 'specific' needs a folder called checkpoint_STEP",
         "name the checkpoint too: 'gs://bkt/t5/checkpoint_STEP'"),
        (RUN + f"{RESTORE}.path = 'gs://bkt/t5/checkpoint_50'\n", "CKP05 error 10",
         "utils.RestoreCheckpointConfig.path = 'gs://bkt/t5/checkpoint_50' is one checkpoint, and mode 'latest' "
         "looks for checkpoints inside it: training would start from scratch",
         "bind utils.RestoreCheckpointConfig.mode = 'specific', or leave /checkpoint_50 out"),
        (run("eval", f"{RESTORE}.mode = 'all'\n"), "CKP05 error 6", "CHECKPOINT_PATH = 'gs://bkt/t5/checkpoint_50' "
         "is one checkpoint, and mode 'all' looks for checkpoints inside it: nothing is evaluated",
         "bind utils.RestoreCheckpointConfig.mode = 'specific', or leave /checkpoint_50 out"),
        (FINE + CHECKPOINT + f"{RESTORE}.mode = 'specfic'\n", "GIN37 error 11",
         "utils.RestoreCheckpointConfig.mode cannot be 'specfic': T5X knows no other mode and dies",
         "did you mean 'specific'?"),
        (restored("gs://bkt/t5") + f"{RESTORE}.mode = 'all'\n", "CKP19 error 11",
         "restore mode 'all' is not supported in training", "write utils.RestoreCheckpointConfig.mode = 'specific'"),
        (MANAGERS + f"{SAVE}.{MANAGER}", "CKP19 error 13",
         "checkpoints are saved with managers.Mine and restored with t5x.checkpoints.OrbaxCheckpointManagerInterface",
         "bind checkpoint_manager_cls to the same class in SaveCheckpointConfig and RestoreCheckpointConfig"),
        (FINE + CHECKPOINT + FALLBACK, "CKP17 error 11", "utils.RestoreCheckpointConfig.fallback_to_scratch = True "
         "needs assignment_map or state_transformation_fns, and neither is bound",
         "bind utils.RestoreCheckpointConfig.assignment_map to pairs of patterns, or remove fallback_to_scratch"),
        (run("eval", FALLBACK + MAP), "CKP17 error 10", "utils.RestoreCheckpointConfig.fallback_to_scratch = True "
         "needs a seed, and evaluate.fallback_init_rng is not bound", "bind evaluate.fallback_init_rng = 0"),
        (FINE + TENSORFLOW + MAP, "CKP18 error 11", "utils.RestoreCheckpointConfig.assignment_map is bound, and "
         "'gs://bkt/t5/model.ckpt-50' (INITIAL_CHECKPOINT_PATH) is a TensorFlow checkpoint, which is only restored "
         "as it is", "use the same model's T5X checkpoint (checkpoint_STEP), or remove the binding"),
        (FINE + TENSORFLOW.replace("-50", "-50.index"), "CKP18 error 10",
         "INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/model.ckpt-50.index' is one file of a TensorFlow checkpoint",
         "leave .index out: 'gs://bkt/t5/model.ckpt-50'"),
        (RUN + f"{RESTORE}.path = 'gs://bkt/t5/model.ckpt-50'\n", "CKP18 error 10",
         "utils.RestoreCheckpointConfig.path = 'gs://bkt/t5/model.ckpt-50' is not a folder, and restore mode "
         "'latest' needs one", "bind utils.RestoreCheckpointConfig.mode = 'specific'"),
        (RUN + f"{SAVE}.dtype = 'fp32'\n", "CKP20 error 10",
         "utils.SaveCheckpointConfig.dtype cannot be 'fp32': T5X saves parameters in no other dtype, given as text, "
         "and dies", "did you mean 'float32'?"),
        (RUN + f"{SAVE}.dtype = 'float16'\n", "CKP20 error 10",
         "utils.SaveCheckpointConfig.dtype cannot be 'float16': T5X saves parameters in no other dtype, given as text, "
         "and dies", "did you mean 'bfloat16'?"),
        (RUN + f"{RESTORE}.dtype = 'int8'\n", "CKP20 error 10",
         "utils.RestoreCheckpointConfig.dtype cannot be 'int8': T5X restores parameters in no other dtype, given as "
         "text, and dies", "give 'float32', 'bfloat16', 'float16' or None"),
        (run("infer", SCORES), "INF09 note 10",
         "mode 'score' gives scores of parameters that are rounded to bfloat16 (t5x/configs/runs/infer.gin:55)",
         "for the scores of training bind utils.RestoreCheckpointConfig.dtype = 'float32'"),
        (restored("gs://bkt/checkpoint_1000000") + "TRAIN_STEPS = 20_000\n", "CKP01 error 11",
         "TRAIN_STEPS = 20000 is below step 1000000 of the checkpoint gs://bkt/checkpoint_1000000",
         "count the checkpoint's steps too: TRAIN_STEPS = 1_020_000 trains 20000 more"),
        (restored("gs://bkt/checkpoint_1000000") + "TRAIN_STEPS = 1_000_000\n", "CKP02 error 11",
         "TRAIN_STEPS = 1000000 is the step of the checkpoint gs://bkt/checkpoint_1000000: nothing would be trained",
         "add the steps to train: TRAIN_STEPS = 1_000_000 + N, written as one number"),
        (model_dir("./run"), "CKP11 error 10", "checkpoints cannot be saved in the relative path MODEL_DIR = './run'",
         "write the whole path, from / or gs:// on"),
        (restored("t5/checkpoint_50"), "CKP11 error 10",
         "the checkpoint's path is relative: INITIAL_CHECKPOINT_PATH = 't5/checkpoint_50'",
         "write the whole path, from / or gs:// on"),
        (restored("t5/model.ckpt-50"), "CKP11 warning 10",
         "the checkpoint's path is relative: INITIAL_CHECKPOINT_PATH = 't5/model.ckpt-50'",
         "write the whole path, from / or gs:// on"),
        (model_dir("/gcs/bkt/run"), "CKP12 warning 10",
         "checkpoints would be saved through a mounted bucket: MODEL_DIR = '/gcs/bkt/run'",
         "write MODEL_DIR = 'gs://bkt/run'"),
        (restored("/gcs/bkt/t5/checkpoint_50") + "MODEL_DIR = 'gs://bkt/run'\n", "GCS03 warning 10",
         "INITIAL_CHECKPOINT_PATH = '/gcs/bkt/t5/checkpoint_50' and MODEL_DIR = 'gs://bkt/run' name the bucket bkt "
         "in two ways", "write INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/checkpoint_50'"),
        (model_dir("gs://b/run"), "GCS10 error 10", "MODEL_DIR = 'gs://b/run' is in a bucket whose name Cloud "
         "Storage refuses: it must have 3 to 63 characters, and has 1", "name a bucket of yours"),
        (model_dir("gs://bkt//run///x/"), "GCS08 warning 10",
         "MODEL_DIR = 'gs://bkt//run///x/' has a double slash, which makes another folder",
         "write MODEL_DIR = 'gs://bkt/run/x/'"),
        (model_dir("/data/$USER/run"), "GCS11 warning 10",
         "MODEL_DIR = '/data/$USER/run' has $USER in it, which is taken as it stands: nothing expands it",
         "write the path in full, or give it when the run starts: --gin.MODEL_DIR=\"'…'\""),
        (model_dir("gs://bucket/t5/checkpoint_5"), "CKP25 warning 10", "MODEL_DIR = 'gs://bucket/t5/checkpoint_5' "
         "is in a checkpoint: T5X goes on from nothing there, and writes its own into it",
         "name the folder of the run, such as 'gs://bucket/t5', to go on with it, or a new one"),
        (RUN + "TRAIN_STEPS = 100_000\n", "CKP14 note 10",
         "100 checkpoints would be written, one every 1000 of 100000 steps, and all of them kept",
         "keep the last few (utils.SaveCheckpointConfig.keep = 5), or save less often"),
        (SEEDED, "CKP15 warning 10", "train/utils.DatasetConfig.seed = 42 fixes the order of the training data, "
         "and its position is not saved: each restart trains on the same first examples again",
         "bind utils.SaveCheckpointConfig.save_dataset = True, or train/utils.DatasetConfig.seed = None for a new "
         "order at each start"),
        (RUN + "RANDOM_SEED = None\n" + SEED, "POD07 note 10", "train/utils.DatasetConfig.seed = 42 seeds the "
         "data, and RANDOM_SEED = None leaves dropout and initialization to the clock", "bind RANDOM_SEED = 0 too"),
        (RUN + "USE_HARDWARE_RNG = True\nRANDOM_SEED = 1\n", "POD07 note 10",
         "USE_HARDWARE_RNG = True: with RANDOM_SEED = 1 the run repeats itself only on the same slice and partitions",
         "bind USE_HARDWARE_RNG = False if it has to repeat elsewhere"),
        (RUN + f"{SAVE}.period = 0\n", "CKP23 error 10",
         "utils.SaveCheckpointConfig.period = 0: no checkpoint is saved, and nothing is left of the run",
         "bind utils.SaveCheckpointConfig.period to the steps between two checkpoints, or "
         "utils.CheckpointConfig.save = None if none is wanted"),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'constant * linear_warmup'\n", "GIN24 warning 12",
         "the run begins at step 1000000 of the schedule (step_offset 0), behind the 1000 steps of its "
         "linear_warmup: there would be no warmup",
         "bind utils.create_learning_rate_scheduler.step_offset = 1_000_000"),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'linear_decay'\n", "GIN24 warning 12", "the run begins at step "
         "1000000 of the schedule (step_offset 0), where linear_decay has come to its end: nothing would be learnt",
         "bind utils.create_learning_rate_scheduler.step_offset = 1_000_000"),
        (RUN + NO_WARMUP, "GIN24 error 11", "utils.create_learning_rate_scheduler.warmup_steps = 0 beside "
         "linear_warmup is 0/0, a learning rate of NaN, at step 0 of the schedule", "without a warmup, write "
         "factors = 'constant'; else bind utils.create_learning_rate_scheduler.warmup_steps to 1 or more"),
        (RUN + NO_WARMUP.replace("constant * linear_warmup", "linear_decay"), "GIN24 error 11",
         "utils.create_learning_rate_scheduler.warmup_steps = 0 beside linear_decay is 0/0, a learning rate of "
         "NaN, at step 0 of the schedule", "bind utils.create_learning_rate_scheduler.warmup_steps to 1 or more"),
        (RUN + NO_WARMUP.replace("linear_warmup", "rsqrt_decay"), "GIN24 error 11",
         "utils.create_learning_rate_scheduler.warmup_steps = 0 beside rsqrt_decay is 1/0, an infinite learning "
         "rate, at step 0 of the schedule", "bind utils.create_learning_rate_scheduler.warmup_steps to 1 or more"),
        (RUN + f"{SCHEDULE}.factors = 'constant * rsqrt_dacay'\n", "GIN26 error 10",
         "the learning rate schedule has a factor 'rsqrt_dacay', which T5X does not know", "did you mean rsqrt_decay?"),
        (BASE + MODEL.format("t5_1_1_base"), "GIN25 warning 11",
         "LOSS_NORMALIZING_FACTOR is None, and T5 was pretrained with 233472 (2048 * 114)",
         "bind LOSS_NORMALIZING_FACTOR = 233472"),
        (BASE + MODEL.format("byt5_base") + "LOSS_NORMALIZING_FACTOR = 233472\n", "GIN25 warning 12",
         "LOSS_NORMALIZING_FACTOR is 233472, and ByT5 was pretrained with 193536 (1024 * 189)",
         "bind LOSS_NORMALIZING_FACTOR = 193536"),
        (RUN + "TRAIN_STEPS = 2_680_000  # 2_650_000 + 50000\n", "GIN23 warning 10",
         "TRAIN_STEPS = 2680000, and the comment beside it comes to 2700000 (2_650_000 + 50000)",
         "write TRAIN_STEPS = 2_700_000, or correct the comment"),
        (RUN + f"{SAVE}:\n  keep = 5  # keep all checkpoints\n", "GIN23 warning 11",
         "utils.SaveCheckpointConfig.keep = 5, and the comment beside it says 'keep all checkpoints'",
         "write utils.SaveCheckpointConfig.keep = None, or remove the comment"),
        (NETWORK + "vocab_size = 32100\n", "MSH14 note 11",
         "network.T5Config.vocab_size = 32100 is not a multiple of 8, and the TPU pads it to 32104 or more",
         "the next multiple of 128 is 32128"),
        (MESH + "model_parallel_submesh = (1, 2, 1)\n", "MSH03 error 11",
         "partitioning.PjitPartitioner.model_parallel_submesh = (1, 2, 1) has 3 numbers, and a slice has four "
         "dimensions: x, y, z and the cores of a chip", "give four, such as (2, 2, 1, 2) for eight devices of a v3"),
        (MESH + "model_parallel_submesh = (2, 2, 1, 1, 1)\n", "MSH03 warning 11",
         "partitioning.PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1, 1) has 5 numbers, and a slice has four "
         "dimensions: x, y, z and the cores of a chip; the rest only multiplies the size of the mesh's model axis",
         "give four, such as (2, 2, 1, 2) for eight devices of a v3"),
        (NETWORK + "dtype = 'bfloat15'\n", "GIN35 error 11",
         "network.T5Config.dtype cannot be 'bfloat15': T5X dies because JAX knows no dtype of this name",
         "did you mean 'bfloat16'?"),
        (NETWORK + "dtype = 'bf16'\n", "GIN35 error 11",
         "network.T5Config.dtype cannot be 'bf16': T5X dies because JAX knows no dtype of this name",
         "did you mean 'bfloat16'?"),
        (NETWORK + "dtype = 'flaot32'\n", "GIN35 error 11",
         "network.T5Config.dtype cannot be 'flaot32': T5X dies because JAX knows no dtype of this name",
         "did you mean 'float32'?"),
        (SCALABLE + "'minmal'\n", "MOD03 warning 4",
         "network.T5Config.remat_policy cannot be 'minmal': T5X takes any other text for 'full' and computes every "
         "layer twice", "did you mean 'minimal'?"),
        (SCALABLE + "'None'\n", "MOD03 warning 4",
         "network.T5Config.remat_policy cannot be 'None': T5X takes any other text for 'full' and computes every "
         "layer twice", "did you mean 'none'?"),
        (SCALABLE + "'dots'\n", "MOD03 warning 4",
         "network.T5Config.remat_policy cannot be 'dots': T5X takes any other text for 'full' and computes every "
         "layer twice", "give 'none', 'minimal', 'full' or None"),
        (RUN + "DROPOUT_RATE = 10\n", "GIN36 error 10", "DROPOUT_RATE = 10 is out of range (read by "
         "network.T5Config.dropout_rate in t5x/examples/t5/t5_1_1/base.gin:58): it is the share that is "
         "dropped: at 1 nothing is left to train on, and beyond 0 and 1 the activations have a wrong scale",
         "give a number from 0 up to, but not including, 1: 10 % is 0.1"),
        (RUN + "LOSS_NORMALIZING_FACTOR = 0\n", "GIN36 error 10", "LOSS_NORMALIZING_FACTOR = 0 is out of range "
         "(read by models.EncoderDecoderModel.loss_normalizing_factor in t5x/examples/t5/t5_1_1/base.gin:41): the "
         "loss is divided by it: 0 makes it infinite, a negative number makes training raise the loss, and T5X dies "
         "at a name it does not know", "give a number above 0 or None"),
        (RUN + "train_script.train.eval_steps = -1\n", "GIN36 error 10",
         "train_script.train.eval_steps = -1 is out of range: it is a whole number of batches: T5X dies at a fraction, "
         "and with a negative number the first evaluation never ends", "give a whole number from 0 up or None"),
    ],
)  # fmt: skip
def test_place_message_and_fix(folder: Folder, gin: str, place: str, message: str, fix: str) -> None:
    folder.write({"managers.py": ""})
    assert folder.said(gin, place) == (message, fix)


@pytest.mark.parametrize(
    ("gin", "place", "said"),
    [
        (restored("gs://bkt/checkpont_1000000"), "CKP05 error 10", "did you mean 'gs://bkt/checkpoint_1000000'?"),
        (restored("gs://bkt/chekpoint_1000000"), "CKP05 error 10", "did you mean 'gs://bkt/checkpoint_1000000'?"),
        (restored("gs://bkt/checkpoint-1000000"), "CKP05 error 10", "did you mean 'gs://bkt/checkpoint_1000000'?"),
        (restored("gs://bkt/checkpoint1000000"), "CKP05 error 10", "did you mean 'gs://bkt/checkpoint_1000000'?"),
        (restored("gs://$BUCKET/t5/checkpoint_5"), "GCS10 error 10", "is in a bucket whose name Cloud Storage refuses"),
        (model_dir("/data/${USER}/run"), "GCS11 warning 10", "has ${USER} in it"),
        (model_dir("~/run"), "GCS11 warning 10", "has ~ in it"),
        (model_dir("gs://bucket/runs\\first"), "GCS11 warning 10", "has a backslash in it, which separates no folders"),
        (model_dir("gs://bucket/{date}/run"), "GCS11 warning 10", "has {date} in it, which is taken as it stands"),
        (model_dir("/data/<your name>/run"), "GCS11 warning 10", "has <your name> in it"),
        (model_dir('"gs://bucket/run"'), "GCS11 warning 10", "has quotes in it, which become a part of the name"),
        (model_dir("gs://bucket/run "), "GCS11 warning 10",
         "begins or ends with a space, which becomes a part of the name"),
        (model_dir("gs://bucket/ru\u200bn"), "GCS11 warning 10",
         "has U+200B (ZERO WIDTH SPACE) in it, which does not show"),
        (model_dir("gs://bucket/a\u00a0run"), "GCS11 warning 10", "has U+00A0 (NO-BREAK SPACE) in it"),
        (model_dir("gs://bucket/run\n"), "GCS11 warning 10", "has U+000A (a control character) in it"),
        (model_dir("https://storage.googleapis.com/bucket/run"), "GCS11 warning 10",
         "is an address of the Web, where T5X"),
        (restored("/data/$USER/checkpoint_5"), "GCS11 warning 10", "has $USER in it"),
        (model_dir("/data/t5/checkpoint_5/again"), "CKP25 warning 10", "is in a checkpoint"),
        (FINE + PUBLIC + f"{SAVE}.period = 100\n", "CKP14 note 12", "200 checkpoints would be written"),
        (RUN + f"{SAVE}.period = None\n", "CKP23 error 10",
         "SaveCheckpointConfig.period = None: no checkpoint is saved"),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'constant * linear_warmup * rsqrt_decay'\n", "GIN24 note 12",
         "step_offset = 1_000_000"),
        (FINE + PUBLIC + NO_WARMUP, "GIN24 warning 13",
         "; this run begins at step 1000000, where linear_warmup does nothing"),
        (FINE + PUBLIC + NO_WARMUP + f"{SCHEDULE}.step_offset = 1_000_000\n", "GIN24 error 13", "0/0"),
        (RUN + "TRAIN_STEPS = 1_006_001  # 1000000 pre-trained steps + 6000 fine-tuning steps.\n", "GIN23 warning 10",
         "write TRAIN_STEPS = 1_006_000, or"),
        (RUN + "TRAIN_STEPS = 12_001  # 10000 of pretraining and 2000 of fine-tuning\n", "GIN23 warning 10",
         "write TRAIN_STEPS = 12_000, or"),
        (RUN + "LOSS_NORMALIZING_FACTOR = 234497  # 1024 * 229\n", "GIN23 warning 10",
         "write LOSS_NORMALIZING_FACTOR = 234_496, or correct"),
        (RUN + "DROPOUT_RATE = -0.1\n", "GIN36 error 10", "; give a number from 0 up to, but not including, 1"),
        (RUN + "DROPOUT_RATE = 1.0\n", "GIN36 error 10", "; give a number from 0 up to, but not including, 1"),
        (RUN + "LABEL_SMOOTHING = 10\n", "GIN36 error 10",
         "; give a number from 0 up to, but not including, 1: 10 % is 0.1"),
        (RUN + "train_script.train.stats_period = -1\n", "GIN36 error 10",
         ": it is a whole number of steps: T5X never ends with a negative number"),
        (ADAFACTOR + "epsilon1 = 1e9\n", "GIN36 error 11", "and a large one drowns the gradients"),
        (ADAFACTOR + "decay_rate = -0.8\n", "GIN36 error 11",
         "the second moment can get negative, and the parameters NaN"),
        (ADAFACTOR + "clipping_threshold = 0\n", "GIN36 error 11",
         "at 0 or next to it no parameter changes"),
    ],
)  # fmt: skip
def test_other_values_of_the_same_kind(folder: Folder, gin: str, place: str, said: str) -> None:
    assert said in "; ".join(map(str, folder.said(gin, place)))


@pytest.mark.parametrize(
    ("gin", "found"),
    [
        (RUN + "train_script.train.eval_period = 1e3\n", "error GIN09"),
        (RUN + "train_script.train.eval_period = 2e3\n", "warning GIN09"),
        (RUN + f"{SAVE}.period = 1e3\n", "warning GIN09"),
        (RUN + f"{SAVE}.period = 5e2\n", "error GIN09"),
        (RUN + "train_script.train.stats_period = 1e2\n", "error GIN09"),
        (RUN + "train_script.train.stats_period = 1e3\n", "warning GIN09"),
        (RUN + "TRAIN_STEPS = 1e3\n", "error GIN09"),
        (restored("gs://bkt/t5/checkpoint_50/"), ""),
        (restored("gs://bkt/t5/model.ckpt-50"), ""),
        (restored("gs://bkt/t5"), "error CKP05"),
        (restored("/data/run/"), "error CKP05"),
        (restored("gs://bkt/t5/checkpoint_final"), "error CKP05"),
        (restored("gs://bkt/t5/checkpoint"), "error CKP05"),
        (RUN + f"{RESTORE}.path = 'gs://bkt/t5'\n", ""),
        (run("eval", f"{RESTORE}.mode = 'all'\n", "gs://bkt/t5"), ""),
        (run("infer", f"{RESTORE}.mode = 'all'\n"), ""),
        (run("infer", f"{RESTORE}.mode = 'all'\n", "gs://bkt/t5"), "error CKP05"),
        (restored("gs://bkt/t5") + f"{RESTORE}.mode = 'all'\nutils.CheckpointConfig.restore = None\n", ""),
        (MANAGERS + f"{SAVE}.{MANAGER}{RESTORE}.{MANAGER}", "error GIN14"),
        (MANAGERS + DEFAULT, ""),
        (RUN + FALLBACK, ""),
        (run("eval", FALLBACK + MAP + "eval_script.evaluate.fallback_init_rng = 0\n"), ""),
        (FINE + TENSORFLOW, ""),
        (RUN + f"{RESTORE}.dtype = 'float16'\n", ""),
        (RUN + f"{RESTORE}.dtype = 'bfloat16'\n", ""),
        (RUN + f"{RESTORE}.dtype = None\n", ""),
        (run("infer"), ""),
        (restored("gs://bkt/checkpoint_1000000") + "TRAIN_STEPS = 20_000\nTRAIN_STEPS_RELATIVE = 10\n", ""),
        (restored("gs://bkt/checkpoint_1000000") + "TRAIN_STEPS = 20_000\nutils.CheckpointConfig.restore = None\n", ""),
        (FINE + CHECKPOINT + "TRAIN_STEPS = 50\n", "error CKP02"),
        (FINE + CHECKPOINT + "TRAIN_STEPS = 50\ntrain_script.train.run_eval_before_training = True\n", ""),
        (model_dir("/run"), ""),
        (model_dir("./run") + "utils.CheckpointConfig.save = None\n", ""),
        (restored("/gcs/bkt/t5/checkpoint_50") + "MODEL_DIR = 'gs://other/run'\n", ""),
        (restored("/gcs/bkt/t5/checkpoint_50") + "MODEL_DIR = '/gcs/bkt/run'\n", "warning CKP12"),
        (model_dir("/b/run"), ""),
        (model_dir("/data//run"), ""),
        (run("infer") + "INFER_OUTPUT_DIR = 'gs://bkt//out'\n", ""),
        (model_dir("gs://bucket/runs~1$/50%/my run's/checkpoints_5") + CHECKPOINT, "warning GIN02"),
        (RUN + "TRAIN_STEPS = 50_000\n", ""),
        (FINE + PUBLIC, ""),
        (FINE + PUBLIC + f"{SAVE}.period = 1000\n", ""),
        (SEEDED + "utils.CheckpointConfig.save = None\n", ""),
        (SEEDED + "TRAIN_STEPS = 1000\n", ""),
        (RUN, ""),
        (RUN + "USE_HARDWARE_RNG = True\n", ""),
        (RUN + f"utils.CheckpointConfig.save = None\n{SAVE}.period = 0\n", ""),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'linear_decay'\n{SCHEDULE}.decay_factor = 1e-7\n", ""),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'constant'\n", ""),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'constant * rsqrt_decay'\n", ""),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'linear_decay'\n{SCHEDULE}.step_offset = 1_000_000\n", ""),
        (FINE + PUBLIC + f"{SCHEDULE}.factors = 'constant * linear_warmup'\n{SCHEDULE}.warmup_steps = 1_005_000\n", ""),
        (RUN + f"{SCHEDULE}.factors = 'constant * linear_warmup'\n", ""),
        (RUN + NO_WARMUP.replace(" * linear_warmup", ""), ""),
        (LATEST, ""),
        (LATEST + NO_WARMUP, "warning GIN24"),
        (RUN + f"{SCHEDULE}.factors = 'constant*linear_warmup * linear_decay *decay_every*cosine_decay'\n", ""),
        (RUN + f"{SCHEDULE}.factors = 'rsqrt_decay*rsqrt_normalized_decay'\n", ""),
        (BASE + MODEL.format("t5_1_1_lm100k_base"), ""),
        (BASE + MODEL.format("umt5_base"), ""),
        (BASE + MODEL.format("my_t5_base"), ""),
        (BASE + MODEL.format("mt5_base") + "LOSS_NORMALIZING_FACTOR = 234496\n", ""),
        (BASE + MODEL.format("mt5_base") + "LOSS_NORMALIZING_FACTOR = 1000\n", ""),
        (BASE + MODEL.format("mt5_base").replace("1000000", "500000"), "note CKP14"),
        (RUN + "TRAIN_STEPS = 10_000  # 10 epochs and 3 hours\n", ""),
        (RUN + "TRAIN_STEPS = 10_000  # see run 3 + 4 of last week\n", ""),
        (RUN + "BATCH_SIZE = 16  # 8 + 8\n", ""),
        (RUN + "BATCH_SIZE = 16  # 2-3 per core\n", ""),
        (RUN + f"{SAVE}.keep = None  # keep all checkpoints\n", ""),
        (RUN + f"{SAVE}.keep = 5  # keep all checkpoints would fill the bucket\n", ""),
        (NETWORK + "emb_dim = 40\n", ""),
        (NETWORK + "dtype = 'float32'\n", ""),
        (NETWORK + "dtype = 'float16'\n", ""),
        (NETWORK + "dtype = 'half'\n", ""),
        (NETWORK + "dtype = 'f4'\n", ""),
        (NETWORK + "dtype = '<f4'\n", ""),
        (NETWORK + "dtype = 'float8_e4m3fn'\n", ""),
        (MESH + "model_parallel_submesh = (1, 2, 1, 1)\n", ""),
        (MESH + "model_parallel_submesh = None\n", ""),
        (MESH + "model_parallel_submesh = ()\n", ""),
        (RUN + "BATCH_SIZE = 66\n", ""),
        (RUN + "train_script.train.eval_period = 300\n", "error MSH12"),
        (RUN + "train_script.train.eval_period = 300\ntrain_script.train.train_eval_dataset_cfg = None\n",
         "note GIN06"),
        (RUN + f"train_script.train.eval_period = 2000\ntrain_script.train.gc_period = 1000\n{SAVE}.period = 3000\n",
         ""),
        (RUN + "train_script.train.eval_period = 0\n", ""),
        (RUN + "utils.CheckpointConfig.save = None\ntrain_script.train.eval_period = 7\n", ""),
        (SCALABLE + "'none'\n", "error GIN31, error GIN03"),
        (SCALABLE + "'full'\n", "error GIN31, error GIN03"),
        (SCALABLE + "None\n", "error GIN31, error GIN03"),
        (RUN + "LABEL_SMOOTHING = 0.1\n", ""),
        (RUN + "LOSS_NORMALIZING_FACTOR = None\n", ""),
        (ADAFACTOR + "epsilon1 = 1e-30\n", ""),
        (ADAFACTOR + "decay_rate = 0\n", ""),
        (ADAFACTOR + "clipping_threshold = None\n", ""),
    ],
)  # fmt: skip
def test_everything_that_is_found(folder: Folder, gin: str, found: str) -> None:
    folder.write({"managers.py": ""})
    assert folder.codes(gin) == found


def test_a_missing_checkpoint_is_named_with_those_beside_it_and_not_by_its_step(folder: Folder) -> None:
    """TRAIN_STEPS is below 40, and above 4, the step that is meant."""
    folder.write({"model/checkpoint_4/checkpoint": "", "model/checkpoint_20/checkpoint": ""})
    path = f"{folder.path}/model/checkpoint_40"
    found = folder.findings(restored(path) + "TRAIN_STEPS = 30\n")
    assert [(f.code, f.message) for f in found if f.code.startswith("CKP0")] == [
        ("CKP04", f"there is no {path}; beside it are checkpoint_4, checkpoint_20")
    ]


def test_what_a_given_bucket_lacks_is_missing(folder: Folder) -> None:
    folder.write({"buckets/mine/other/x": ""})
    for bucket, missed in (("gs://mine", 1), ("/gcs/mine", 1), ("gs://theirs", 0)):
        found = folder.findings(restored(f"{bucket}/model/checkpoint_40"), gcs_root="buckets")
        assert [f.code for f in found].count("CKP04") == missed, bucket
    everything = {"gcs_root": "buckets", "standins": StandInPolicy.ALL}
    found = folder.findings(restored("gs://mine/model/checkpoint_40"), **everything)
    assert "CKP04" not in {f.code for f in found}


def test_float_lengths_are_found_through_an_include(folder: Folder) -> None:
    folder.write({"data.gin": "TASK_FEATURE_LENGTHS = {'inputs': 512.0, 'targets': 8}\n"})
    finding = folder.only(RUN + "include 'data.gin'\n", "GIN09")
    assert finding.message.startswith("TASK_FEATURE_LENGTHS['inputs'] = 512.0 is a float, and a whole number is needed")
    assert finding.fix == "write TASK_FEATURE_LENGTHS['inputs'] = 512"
    assert finding.location == Location("data.gin", 1, (Location("run.gin", 10),))


@pytest.mark.stack
def test_a_factory_of_schedules_is_not_a_schedule(folder: Folder) -> None:
    head = RUN.replace("import utils\n", "import utils\nfrom t5x import trainer\nimport optax\nimport mine\n")
    head += "trainer.Trainer.learning_rate_fn = @"
    folder.write({"mine.py": "def schedule(step):\n    return 0.1\n"})
    for name in ("utils.create_learning_rate_scheduler", "optax.warmup_cosine_decay_schedule"):
        fix = f"add (): trainer.Trainer.learning_rate_fn = @{name}()"
        assert folder.only(f"{head}{name}\n", "GIN20").fix == fix
    assert folder.findings(head + "mine.schedule\n") == []


def test_a_batch_is_held_against_the_slice_only_where_one_is_named(folder: Folder) -> None:
    gin = MESH + "num_partitions = 2\nBATCH_SIZE = 66\n"
    finding = folder.only(gin, "MSH02", on_slice=True)
    assert (finding.location, finding.fix) == (Location("run.gin", 12), "set BATCH_SIZE to 64 or 68")
    assert finding.message == (
        "the batch size of train and train_eval is 66, and the mesh's data axis has 4 positions with num_partitions "
        "= 2: 66 / 4 leaves 2"
    )
    assert folder.findings(gin.replace("= 2", "= 4"), on_slice=True) == []
    assert folder.findings(gin) == []
