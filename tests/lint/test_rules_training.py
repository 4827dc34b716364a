"""Training that runs and is hardly as meant: output folders, seeds, schedules, the loss, comments."""

from __future__ import annotations

import pytest
from linting import FINETUNE, PRETRAIN, RUN, TINY, Folder

from t5x_harness.spec import Location, Severity

FINE = RUN.replace(PRETRAIN, FINETUNE)
SEED = "train/utils.DatasetConfig.seed = 42\n"
SCALABLE = (
    "from __gin__ import dynamic_registration\nfrom t5x.examples.scalable_t5 import network\n"
    "include 't5x/examples/scalable_t5/t5_1_1/small.gin'\n"
)
SCHEDULE = "utils.create_learning_rate_scheduler"


def codes(folder: Folder, gin: str) -> list[str]:
    return [f.code for f in folder.findings(gin)]


def test_checkpoints_are_not_saved_in_a_relative_path(folder: Folder) -> None:
    finding = folder.only(RUN + "MODEL_DIR = './run'\n", "CKP11")
    assert finding.message == "checkpoints cannot be saved in the relative path MODEL_DIR = './run'"
    assert (finding.severity, finding.fix) == (Severity.ERROR, "write the whole path, from / or gs:// on")
    for gin in ("MODEL_DIR = '/run'\n", "MODEL_DIR = 'gs://bkt/run'\n"):
        assert codes(folder, RUN + gin) == []
    assert codes(folder, RUN + "MODEL_DIR = './run'\nutils.CheckpointConfig.save = None\n") == []


def test_a_relative_checkpoint_is_a_warning(folder: Folder) -> None:
    finding = folder.only(FINE + "INITIAL_CHECKPOINT_PATH = 't5/checkpoint_50'\n", "CKP11")
    assert finding.severity is Severity.WARNING
    assert finding.message == "the checkpoint's path is relative: INITIAL_CHECKPOINT_PATH = 't5/checkpoint_50'"


def test_mounted_buckets_and_their_two_names(folder: Folder) -> None:
    checkpoint = "INITIAL_CHECKPOINT_PATH = '/gcs/bkt/t5/checkpoint_50'\n"
    finding = folder.only(RUN + "MODEL_DIR = '/gcs/bkt/run'\n", "CKP12")
    assert finding.fix == "write MODEL_DIR = 'gs://bkt/run'"
    finding = folder.only(FINE + checkpoint + "MODEL_DIR = 'gs://bkt/run'\n", "GCS03")
    assert finding.message == (
        "INITIAL_CHECKPOINT_PATH = '/gcs/bkt/t5/checkpoint_50' and MODEL_DIR = 'gs://bkt/run' name the bucket bkt in "
        "two ways"
    )
    assert finding.fix == "write INITIAL_CHECKPOINT_PATH = 'gs://bkt/t5/checkpoint_50'"
    assert codes(folder, FINE + checkpoint + "MODEL_DIR = 'gs://other/run'\n") == []
    assert codes(folder, FINE + checkpoint + "MODEL_DIR = '/gcs/bkt/run'\n") == ["CKP12"]


def test_a_bucket_that_nobody_can_have_is_not_written_to(folder: Folder) -> None:
    finding = folder.only(RUN + "MODEL_DIR = 'gs://b/run'\n", "GCS10")
    assert finding.message == (
        "MODEL_DIR = 'gs://b/run' is in a bucket whose name Cloud Storage refuses: it must have 3 to 63 characters, "
        "and has 1"
    )
    assert codes(folder, RUN + "MODEL_DIR = '/b/run'\n") == []


def test_a_double_slash_is_another_folder_except_where_t5x_takes_it_out(folder: Folder) -> None:
    finding = folder.only(RUN + "MODEL_DIR = 'gs://bkt//run///x/'\n", "GCS08")
    assert finding.fix == "write MODEL_DIR = 'gs://bkt/run/x/'"
    assert codes(folder, RUN + "MODEL_DIR = '/data//run'\n") == []
    infer = (
        f"include '{TINY}'\ninclude 't5x/configs/runs/infer.gin'\nMIXTURE_OR_TASK_NAME = 'x'\nDROPOUT_RATE = 0.0\n"
        "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\nCHECKPOINT_PATH = 'gs://bkt/checkpoint_1'\n"
    )
    assert codes(folder, infer + "INFER_OUTPUT_DIR = 'gs://bkt//out'\n") == []


def test_checkpoints_that_are_all_kept_are_counted(folder: Folder) -> None:
    finding = folder.only(RUN + "TRAIN_STEPS = 100_000\n", "CKP14")
    assert finding.message == ("100 checkpoints would be written, one every 1000 of 100000 steps, and all of them kept")
    assert (finding.severity, finding.location) == (Severity.NOTE, Location("run.gin", 10))
    assert finding.fix == "keep the last few (utils.SaveCheckpointConfig.keep = 5), or save less often"
    assert codes(folder, RUN + "TRAIN_STEPS = 50_000\n") == []
    # The steps of pretraining have been saved already.
    fine = FINE + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_1000000'\nTRAIN_STEPS = 1_020_000\n"
    assert codes(folder, fine) == []
    assert "20 checkpoints" not in str(folder.findings(fine + "utils.SaveCheckpointConfig.period = 1000\n"))
    assert "200 checkpoints" in folder.only(fine + "utils.SaveCheckpointConfig.period = 100\n", "CKP14").message


def test_seeded_data_is_only_safe_with_its_position(folder: Folder) -> None:
    gin = RUN + SEED + "RANDOM_SEED = 0\nTRAIN_STEPS = 3000\n"
    finding = folder.only(gin, "CKP15")
    assert (finding.severity, finding.location) == (Severity.WARNING, Location("run.gin", 10))
    assert finding.fix == (
        "bind utils.SaveCheckpointConfig.save_dataset = True, or train/utils.DatasetConfig.seed = None for a new order "
        "at each start"
    )
    assert codes(folder, gin + "utils.SaveCheckpointConfig.save_dataset = True\n") == []
    assert codes(folder, gin + "utils.CheckpointConfig.save = None\n") == []
    assert codes(folder, gin + "TRAIN_STEPS = 1000\n") == []  # no checkpoint to go on from


def test_half_a_seed_does_not_repeat_a_run(folder: Folder) -> None:
    gin = RUN + "RANDOM_SEED = None\n" + SEED
    finding = folder.only(gin, "POD07")
    assert finding.message == (
        "train/utils.DatasetConfig.seed = 42 seeds the data, and RANDOM_SEED = None leaves dropout and initialisation "
        "to the clock"
    )
    assert (finding.fix, finding.location) == ("bind RANDOM_SEED = 0 too", Location("run.gin", 10))
    assert codes(folder, RUN) == []


def test_hardware_random_numbers_depend_on_the_mesh(folder: Folder) -> None:
    assert codes(folder, RUN + "USE_HARDWARE_RNG = True\n") == []
    finding = folder.only(RUN + "USE_HARDWARE_RNG = True\nRANDOM_SEED = 1\n", "POD07")
    assert finding.message == (
        "USE_HARDWARE_RNG = True: with RANDOM_SEED = 1 the run repeats itself only on the same slice and partitions"
    )


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        ("factors = 'constant * linear_warmup'", Severity.WARNING),
        ("factors = 'constant * linear_warmup * rsqrt_decay'", Severity.NOTE),
        ("factors = 'linear_decay'", Severity.WARNING),
        ("factors = 'linear_decay'\n  decay_factor = 1e-7", None),
        ("factors = 'constant'", None),
        ("factors = 'constant * rsqrt_decay'", None),
        ("factors = 'constant * linear_warmup'\n  step_offset = 1_000_000", None),
        ("factors = 'linear_decay'\n  step_offset = 1_000_000", None),
        ("factors = 'constant * linear_warmup'\n  warmup_steps = 1_005_000", None),
    ],
)
def test_a_schedule_has_to_know_where_fine_tuning_begins(folder: Folder, lines: str, severity: Severity | None) -> None:
    gin = FINE + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_1000000'\nTRAIN_STEPS = 1_020_000\n"
    found = [f for f in folder.findings(f"{gin}{SCHEDULE}:\n  {lines}\n") if f.code == "GIN24"]
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all(f.fix == f"bind {SCHEDULE}.step_offset = 1_000_000" for f in found)


def test_a_schedule_of_a_run_from_scratch_is_left_alone(folder: Folder) -> None:
    assert codes(folder, RUN + f"{SCHEDULE}.factors = 'constant * linear_warmup'\n") == []


def test_the_loss_of_public_checkpoints(folder: Folder) -> None:
    base = FINE.replace("tiny", "base") + "TRAIN_STEPS = 1_020_000\n"
    path = "INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/{}/checkpoint_1000000'\n"
    finding = folder.only(base + path.format("t5_1_1_base"), "GIN25")
    assert finding.message == "LOSS_NORMALIZING_FACTOR is None, and T5 was pretrained with 233472 (2048 * 114)"
    assert (finding.fix, finding.location) == ("bind LOSS_NORMALIZING_FACTOR = 233472", Location("run.gin", 11))
    finding = folder.only(base + path.format("byt5_base") + "LOSS_NORMALIZING_FACTOR = 233472\n", "GIN25")
    assert finding.message == "LOSS_NORMALIZING_FACTOR is 233472, and ByT5 was pretrained with 193536 (1024 * 189)"
    assert finding.location == Location("run.gin", 12)
    for name in ("t5_1_1_lm100k_base", "umt5_base", "my_t5_base"):
        assert codes(folder, base + path.format(name)) == []
    assert codes(folder, base + path.format("mt5_base") + "LOSS_NORMALIZING_FACTOR = 234496\n") == []
    assert codes(folder, base + path.format("mt5_base") + "LOSS_NORMALIZING_FACTOR = 1000\n") == []
    assert "GIN25" not in codes(folder, base + path.format("mt5_base").replace("1000000", "500000"))


@pytest.mark.parametrize(
    ("line", "claimed"),
    [
        ("TRAIN_STEPS = 2_680_000  # 2_650_000 + 50000", 2_700_000),
        ("TRAIN_STEPS = 1_006_001  # 1000000 pre-trained steps + 6000 fine-tuning steps.", 1_006_000),
        ("TRAIN_STEPS = 12_001  # 10000 of pretraining and 2000 of fine-tuning", 12_000),
        ("LOSS_NORMALIZING_FACTOR = 234497  # 1024 * 229", 234_496),
        ("TRAIN_STEPS = 2_700_000  # 2_650_000 + 50000", None),
        ("TRAIN_STEPS = 10_000  # 10 epochs and 3 hours", None),
        ("TRAIN_STEPS = 10_000  # see run 3 + 4 of last week", None),
        ("BATCH_SIZE = 16  # 8 + 8", None),
        ("BATCH_SIZE = 16  # 2-3 per core", None),
    ],
)
def test_arithmetic_in_comments_is_checked(folder: Folder, line: str, claimed: int | None) -> None:
    found = [f for f in folder.findings(RUN + line + "\n") if f.code == "GIN23"]
    name = line.partition(" ")[0]
    assert [f.fix for f in found] == ([f"write {name} = {claimed:_}, or correct the comment"] if claimed else [])


def test_a_comment_that_belongs_to_none_is_found_beside_a_number(folder: Folder) -> None:
    finding = folder.only(RUN + "utils.SaveCheckpointConfig:\n  keep = 5  # keep all checkpoints\n", "GIN23")
    assert (
        finding.message == "utils.SaveCheckpointConfig.keep = 5, and the comment beside it says 'keep all checkpoints'"
    )
    assert finding.location == Location("run.gin", 11)
    for line in ("keep = None  # keep all checkpoints", "keep = 5  # keep all checkpoints would fill the bucket"):
        assert "GIN23" not in codes(folder, RUN + f"utils.SaveCheckpointConfig.{line}\n")


def test_sizes_that_fill_no_tile_are_noted(folder: Folder) -> None:
    head = RUN.replace("from t5x import utils\n", "from t5x import utils\nfrom t5x.examples.t5 import network\n")
    finding = folder.only(head + "network.T5Config.vocab_size = 32100\n", "MSH14")
    assert finding.message == (
        "network.T5Config.vocab_size = 32100 is not a multiple of 8, and the TPU pads it to 32104 or more"
    )
    assert (finding.severity, finding.fix) == (Severity.NOTE, "the next multiple of 128 is 32128")
    assert codes(folder, head + "network.T5Config.emb_dim = 40\n") == []


def test_a_period_counts_only_where_it_is_used(folder: Folder) -> None:
    gin = RUN + "train_script.train.eval_period = 300\n"
    assert codes(folder, gin) == ["MSH12"]
    assert "MSH12" not in codes(folder, gin + "train_script.train.train_eval_dataset_cfg = None\n")


def test_no_step_to_train_is_a_way_to_evaluate(folder: Folder) -> None:
    gin = FINE + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_50'\nTRAIN_STEPS = 50\n"
    assert codes(folder, gin) == ["CKP02"]
    assert codes(folder, gin + "train_script.train.run_eval_before_training = True\n") == []


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        ("train_script.train.eval_period = 1e3", Severity.ERROR),  # what min() of equal periods gives
        ("train_script.train.eval_period = 2e3", Severity.WARNING),
        ("utils.SaveCheckpointConfig.period = 1e3", Severity.WARNING),
        ("utils.SaveCheckpointConfig.period = 5e2", Severity.ERROR),
        ("train_script.train.stats_period = 1e2", Severity.ERROR),
        ("train_script.train.stats_period = 1e3", Severity.WARNING),
        ("TRAIN_STEPS = 1e3", Severity.ERROR),
    ],
)
def test_a_float_is_an_error_where_it_comes_to_be_counted(folder: Folder, lines: str, severity: Severity) -> None:
    assert folder.only(RUN + lines + "\n", "GIN09").severity is severity


@pytest.mark.parametrize(
    ("factors", "result", "fix"),
    [
        ("constant * linear_warmup", "0/0, a learning rate of NaN", "without a warmup, write factors = 'constant'; "
         f"else bind {SCHEDULE}.warmup_steps to 1 or more"),
        ("linear_decay", "0/0, a learning rate of NaN", f"bind {SCHEDULE}.warmup_steps to 1 or more"),
        ("constant * rsqrt_decay", "1/0, an infinite learning rate", f"bind {SCHEDULE}.warmup_steps to 1 or more"),
    ],
)  # fmt: skip
def test_no_steps_of_warmup_divide_by_zero(folder: Folder, factors: str, result: str, fix: str) -> None:
    schedule = f"{SCHEDULE}.factors = '{factors}'\n{SCHEDULE}.warmup_steps = 0\n"
    finding = folder.only(RUN + schedule, "GIN24")
    assert (finding.severity, finding.location, finding.fix) == (Severity.ERROR, Location("run.gin", 11), fix)
    name = factors.rpartition(" ")[2]
    assert finding.message == f"{SCHEDULE}.warmup_steps = 0 beside {name} is {result}, at step 0 of the schedule"


def test_no_steps_of_warmup_far_from_step_0_only_do_nothing(folder: Folder) -> None:
    schedule = f"{SCHEDULE}.factors = 'constant * linear_warmup'\n{SCHEDULE}.warmup_steps = 0\n"
    fine = FINE + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/checkpoint_1000000'\nTRAIN_STEPS = 1_010_000\n" + schedule
    finding = folder.only(fine, "GIN24")
    assert finding.severity is Severity.WARNING
    assert finding.message.endswith("; this run begins at step 1000000, where linear_warmup does nothing")
    assert folder.only(fine + f"{SCHEDULE}.step_offset = 1_000_000\n", "GIN24").severity is Severity.ERROR
    assert "GIN24" not in codes(folder, RUN + f"{SCHEDULE}.factors = 'constant'\n{SCHEDULE}.warmup_steps = 0\n")


def test_a_factor_that_t5x_does_not_have(folder: Folder) -> None:
    finding = folder.only(RUN + f"{SCHEDULE}.factors = 'constant * rsqrt_dacay'\n", "GIN26")
    assert finding.message == "the learning rate schedule has a factor 'rsqrt_dacay', which T5X does not know"
    assert (finding.fix, finding.location) == ("did you mean rsqrt_decay?", Location("run.gin", 10))
    all_of_them = "constant*linear_warmup * linear_decay * rsqrt_decay*rsqrt_normalized_decay *decay_every*cosine_decay"
    assert "GIN26" not in codes(folder, RUN + f"{SCHEDULE}.factors = '{all_of_them}'\n")


def test_float_lengths_are_found_through_an_include(folder: Folder) -> None:
    folder.write({"data.gin": "TASK_FEATURE_LENGTHS = {'inputs': 512.0, 'targets': 8}\n"})
    finding = folder.only(RUN + "include 'data.gin'\n", "GIN09")
    assert finding.message.startswith("the length of inputs in TASK_FEATURE_LENGTHS is the float 512.0, and a whole")
    assert (finding.fix, finding.location) == (
        "write 'inputs': 512",
        Location("data.gin", 1, (Location("run.gin", 10),)),
    )


@pytest.mark.stack
def test_a_factory_of_schedules_is_not_a_schedule(folder: Folder) -> None:
    head = RUN.replace("import utils\n", "import utils\nfrom t5x import trainer\nimport optax\nimport mine\n")
    folder.write({"mine.py": "def schedule(step):\n    return 0.1\n"})
    for name in ("utils.create_learning_rate_scheduler", "optax.warmup_cosine_decay_schedule"):
        finding = folder.only(head + f"trainer.Trainer.learning_rate_fn = @{name}\n", "GIN20")
        assert finding.fix == f"add (): trainer.Trainer.learning_rate_fn = @{name}()"
    assert codes(folder, head + "trainer.Trainer.learning_rate_fn = @mine.schedule\n") == []


def test_a_save_period_of_zero_leaves_nothing_of_the_run(folder: Folder) -> None:
    for value in ("0", "None"):
        finding = folder.only(RUN + f"utils.SaveCheckpointConfig.period = {value}\n", "CKP23")
        assert finding.message == (
            f"utils.SaveCheckpointConfig.period = {value}: no checkpoint is saved, and nothing is left of the run"
        )
        assert (finding.severity, finding.location) == (Severity.ERROR, Location("run.gin", 10))
    assert codes(folder, RUN + "utils.CheckpointConfig.save = None\nutils.SaveCheckpointConfig.period = 0\n") == []


def test_a_type_of_the_model_that_does_not_exist(folder: Folder) -> None:
    head = RUN.replace("import utils\n", "import utils\nfrom t5x.examples.t5 import network\n")
    for name, near in (("bfloat15", "bfloat16"), ("bf16", "bfloat16"), ("flaot32", "float32")):
        finding = folder.only(head + f"network.T5Config.dtype = '{name}'\n", "GIN35")
        assert finding.message == f"network.T5Config.dtype = '{name}': there is no type of this name"
        assert finding.fix == f"did you mean '{near}'?"
    for name in ("bfloat16", "float32", "float16", "half", "f4", "<f4", "float8_e4m3fn"):
        assert codes(folder, head + f"network.T5Config.dtype = '{name}'\n") == []


def test_a_submesh_has_four_numbers(folder: Folder) -> None:
    head = RUN.replace("import utils\n", "import utils\nfrom t5x import partitioning\n")
    line = "partitioning.PjitPartitioner.model_parallel_submesh = {}\n"
    finding = folder.only(head + line.format("(1, 2, 1)"), "MSH03")
    assert finding.message == (
        "partitioning.PjitPartitioner.model_parallel_submesh = (1, 2, 1) has 3 numbers, and a slice has four "
        "dimensions: x, y, z and the cores of a chip"
    )
    assert finding.location == Location("run.gin", 11)
    for value in ("(1, 2, 1, 1)", "None", "()"):
        assert codes(folder, head + line.format(value)) == []


def test_a_batch_is_held_against_the_slice_only_where_one_is_named(folder: Folder) -> None:
    gin = RUN.replace("import utils\n", "import utils\nfrom t5x import partitioning\n") + "BATCH_SIZE = 66\n"
    assert codes(folder, gin) == []
    finding = folder.only(gin + "partitioning.PjitPartitioner.num_partitions = 2\n", "MSH02", on_slice=True)
    assert (finding.location, finding.fix) == (Location("run.gin", 11), "set BATCH_SIZE to 64 or 68")
    assert finding.message == (
        "the batch size of train and train_eval is 66, and the mesh's data axis has 4 positions: 66 / 4 leaves 2"
    )
    assert folder.findings(gin + "partitioning.PjitPartitioner.num_partitions = 4\n", on_slice=True) == []


def test_checkpoints_are_not_counted_from_a_step_that_text_does_not_show(folder: Folder) -> None:
    """A run's folder in mode 'latest': the steps that are left depend on what lies there."""
    latest = (
        FINE + "INITIAL_CHECKPOINT_PATH = 'gs://bkt/run'\nutils.RestoreCheckpointConfig.mode = 'latest'\n"
        "TRAIN_STEPS = 1_010_000\n"
    )
    assert codes(folder, latest) == []
    assert codes(
        folder, latest + f"{SCHEDULE}.factors = 'constant * linear_warmup'\n{SCHEDULE}.warmup_steps = 0\n"
    ) == ["GIN24"]


@pytest.mark.parametrize(
    ("policy", "fix"),
    [
        ("'minmal'", "write network.T5Config.remat_policy = 'minimal'"),
        ("'None'", "write network.T5Config.remat_policy = 'none'"),
        ("'dots'", "use one of 'none', 'minimal', 'full'"),
    ],
)
def test_a_remat_policy_that_t5x_takes_for_full(folder: Folder, policy: str, fix: str) -> None:
    finding = folder.only(f"{SCALABLE}network.T5Config.remat_policy = {policy}\n", "MOD03")
    assert finding.message.startswith(f"there is no remat policy {policy}: T5X takes it for 'full'")
    assert finding.fix == fix


ADAFACTOR = (
    RUN.replace("from t5x import utils\n", "from t5x import adafactor\nfrom t5x import utils\n")
    + "adafactor.Adafactor."
)


@pytest.mark.parametrize("policy", ["'none'", "'full'", "None"])
def test_remat_policies_that_are_meant(folder: Folder, policy: str) -> None:
    assert "MOD03" not in {f.code for f in folder.findings(f"{SCALABLE}network.T5Config.remat_policy = {policy}\n")}


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("DROPOUT_RATE = 10", "give a number from 0 up to, but not including, 1: 10 % is 0.1"),
        ("DROPOUT_RATE = -0.1", "give a number from 0 up to, but not including, 1"),
        ("DROPOUT_RATE = 1.0", "give a number from 0 up to, but not including, 1"),
        ("LABEL_SMOOTHING = 10", "give a number from 0 up to, but not including, 1: 10 % is 0.1"),
        ("LOSS_NORMALIZING_FACTOR = 0", "give a number above 0"),
    ],
)
def test_a_number_out_of_its_range(folder: Folder, line: str, fix: str) -> None:
    finding = folder.only(f"{RUN}{line}\n", "GIN36")
    assert finding.message.startswith(f"{line} is out of range (read by ")
    assert (finding.severity, finding.fix) == (Severity.ERROR, fix)


@pytest.mark.parametrize("name", ["eval_steps", "stats_period"])
def test_a_number_of_steps_below_zero(folder: Folder, name: str) -> None:
    """T5X takes -1 batches for all that there are, and repeats the data without end."""
    finding = folder.only(f"{RUN}train_script.train.{name} = -1\n", "GIN36")
    assert finding.message.endswith("is out of range: T5X's loop over steps does not end, or makes no step")


@pytest.mark.parametrize(
    ("setting", "outside"),
    [
        ("epsilon1 = 1e9", "it is added to squared gradients, and drowns them"),
        ("decay_rate = -0.8", "the updates are not finite"),
        ("clipping_threshold = 0", "the updates are nothing, or not finite"),
    ],
)
def test_a_number_of_adafactor_out_of_its_range(folder: Folder, setting: str, outside: str) -> None:
    assert folder.only(f"{ADAFACTOR}{setting}\n", "GIN36").message.endswith(f": {outside}")


@pytest.mark.parametrize("setting", ["epsilon1 = 1e-30", "decay_rate = 0", "clipping_threshold = None"])
def test_numbers_of_adafactor_in_their_range(folder: Folder, setting: str) -> None:
    """A decay rate of 0 is Adafactor without a memory."""
    assert "GIN36" not in codes(folder, f"{ADAFACTOR}{setting}\n")


@pytest.mark.parametrize("line", ["DROPOUT_RATE = 0", "LABEL_SMOOTHING = 0.1", "LOSS_NORMALIZING_FACTOR = None"])
def test_numbers_in_their_range(folder: Folder, line: str) -> None:
    assert "GIN36" not in codes(folder, f"{RUN}{line}\n")
