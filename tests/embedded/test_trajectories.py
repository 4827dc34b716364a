"""Programs train as T5X's do, step by step, resume as if never stopped, and say in one line what cannot run."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from recorded import REFERENCE, Tolerance, changed, differences, record, same

from t5x_harness.runtime.cpu_isa import why_not
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.workers.errors import RunRaised

ALL_STEPS = [str(step) for step in range(1, 9)]
MEASURED_PER_SUMMARY = (
    "seconds",
    "seqs",
    "seqs_per_second",
    "seqs_per_second_per_core",
    "steps_per_second",
    "target_tokens_per_second",
    "target_tokens_per_second_per_core",
)


def train_case(programs: Any, folder: Path, case: str, cpu_isa: str | None = None) -> dict[str, Any]:
    """Trains a recorded case and returns its results; for a level of instructions, compiled as T5X compiles."""
    (folder / "case.gin").write_text(record(case)["gin"])
    with programs.start(brief=case != "t5_1_1", cpu_isa=cpu_isa) as run:  # t5_1_1 runs as in a shell of exec
        flags = ["--gin_file=case.gin", f'--gin.MODEL_DIR="{folder}/model"']
        assert run.call("run", module="t5x.train", flags=flags, timeout=240) == 0
        observed: dict[str, Any] = run.call("observe", model_dir="model", final_step=record(case)["final_step"])
    return observed


JOURNEYS = ("t5_1_1", "t5_1_1_dropout", "t5_1_1_packed", "t5_1_0", "warmup_lr", "scalable_t5")


@pytest.mark.parametrize(
    "case",
    [
        "t5_1_1_microbatches",
        *(pytest.param(case, marks=pytest.mark.journey) for case in JOURNEYS),
    ],
)
def test_trains_as_recorded(case: str, programs: Any, tmp_path: Path) -> None:
    assert differences(record(case), train_case(programs, tmp_path, case), Tolerance()) == []


BFLOAT16 = Tolerance(scalar=2**-8, accuracy=2**-4, parameter=2**-8, state=2**-4)
"""The largest allowed difference between a run in bfloat16 and the same run in float32, on any CPU.

A bfloat16 has 8 significant bits, so one rounding is off by up to 2**-9. Where a CPU rounds (each product, or sums that
it keeps in float32) depends on its instructions, and so do the numbers of a record in bfloat16. Losses and parameters
are within twice one rounding. The optimizer's states are means of squared gradients, which have passed through
every layer on their way: the roundings of four layers forward and backward, and twice that for the square. Of the at
most 64 tokens that an accuracy counts, four may be ties. Limiting XLA's instructions (SSE4.2 to AVX-512, with and
without its fusions) gave 0.0018, 0.0016, 0.055 and two tokens.
"""


@pytest.mark.journey
def test_trains_in_bfloat16_as_recorded_but_for_its_rounding(programs: Any, tmp_path: Path) -> None:
    exact = record("t5_1_1")
    assert differences(exact, record("t5_1_1_bfloat16"), BFLOAT16) == []  # T5X itself is as far from float32
    observed = train_case(programs, tmp_path, "t5_1_1_bfloat16")
    assert differences(exact, observed, BFLOAT16) == []
    losses = observed["scalars"]["train"]["loss"]
    assert not any(same(want, losses[step], 1e-6) for step, want in exact["scalars"]["train"]["loss"].items())


@pytest.mark.journey
@pytest.mark.skipif(bool(why_not("avx2")), reason=why_not("avx2"))
def test_trains_in_bfloat16_to_the_bit_as_any_cpu_with_avx2(programs: Any, tmp_path: Path) -> None:
    """T5X wrote the record's numbers on a CPU with AVX-512, and the same ones on an emulated one without."""
    case = record("t5_1_1_bfloat16")
    observed = train_case(programs, tmp_path, "t5_1_1_bfloat16", cpu_isa=case["cpu_isa"])
    assert differences(case, observed, Tolerance(0.0, 0.0, 0.0, 0.0)) == []


@pytest.mark.journey
def test_evaluates_by_inference_as_recorded(programs: Any, tmp_path: Path) -> None:
    """This includes what the records' scalars leave out: the time that each step took, and the config."""
    observed = train_case(programs, tmp_path, "t5_1_1_infer_eval")
    assert differences(record("t5_1_1_infer_eval"), observed, Tolerance()) == []
    config = (tmp_path / "model/config.gin").read_text()
    assert f"'{tmp_path}/model'" in config
    assert re.sub(r"(?<=MODEL_DIR = )[^']*'[^']*'", "'model'", config) == (REFERENCE / "config.gin").read_text()
    measured = {
        folder: {tag: list(steps) for tag, steps in tags.items() if tag.startswith("timing/")}
        for folder, tags in observed["scalars"].items()
    }
    assert measured == {
        "inference_eval/ref_reverse": {},
        "train": {
            "timing/init_or_restore_seconds": ["0"],
            "timing/compilation_seconds": ["0"],
            "timing/train_iter_warmup": ["0"],
            "timing/checkpoint_seconds": ["4", "8"],
            "timing/evaluate_seconds": ["4", "8"],
            "timing/uptime": ALL_STEPS,
            **{f"timing/{tag}": ALL_STEPS for tag in MEASURED_PER_SUMMARY},
        },
        "training_eval/ref_reverse": {
            "timing/compilation_seconds": ["4"],
            **{f"timing/{tag}": ["4", "8"] for tag in MEASURED_PER_SUMMARY},
        },
    }


def test_a_difference_in_any_part_is_told() -> None:
    """The comparison can fail: each change to a run yields one line that names it."""
    expected = record("t5_1_1_infer_eval")
    leaf = "target/token_embedder/embedding"
    loss = expected["scalars"]["train"]["loss"]["3"]
    lines = expected["inference_eval"]["ref_reverse-000008.jsonl"]
    changes: list[tuple[dict[str, Any], str]] = [
        (changed(expected, loss * 1.001, "scalars", "train", "loss", "3"), "train/loss at step 3: "),
        (changed(expected, float("nan"), "scalars", "train", "loss", "3"), "train/loss at step 3: nan"),
        (changed(expected, {}, "scalars", "training_eval/ref_reverse"), "training_eval/ref_reverse: tags missing "),
        (changed(expected, {"8": 1.0}, "scalars", "train", "accuracy"), "train/accuracy: written at steps ['8']"),
        (changed(expected, expected["files"][1:], "files"), "files missing: ['checkpoint_0']"),
        (changed(expected, [*expected["files"], "checkpoint_5"], "files"), "more files: ['checkpoint_5']"),
        (changed(expected, [1, 2], "final_state", leaf, "shape"), f"{leaf}: shape [1, 2], not [384, 16]"),
        (changed(expected, 0.0, "final_state", leaf, "abs_sum"), f"{leaf}: abs_sum 0.0, not "),
        (changed(expected, lines[:-1], "inference_eval", "ref_reverse-000008.jsonl"), ".jsonl: 7 lines, not 8"),
        (
            changed(
                expected, [{**lines[0], "prediction": "x"}, *lines[1:]], "inference_eval", "ref_reverse-000008.jsonl"
            ),
            "line 1, prediction: 'x', not 'eteetet'",
        ),
        (changed(expected, "", "model_info"), "model-info.txt has another text"),
    ]
    for run, told in changes:
        found = differences(expected, run, Tolerance())
        assert told in "\n".join(found), (told, found)
    assert differences(expected, expected, Tolerance()) == []


GUIDE = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import utils

include 'pretrain_span_corruption.gin'

BATCH_SIZE = 8
DROPOUT_RATE = 0.1
train_script.train.eval_period = 2
train_script.train.eval_steps = 1
train_script.train.stats_period = 1
utils.SaveCheckpointConfig.period = 2

train/utils.DatasetConfig.seed = 42
RANDOM_SEED = 42
utils.SaveCheckpointConfig.save_dataset = True
"""


@pytest.mark.journey
def test_stopped_and_resumed_is_as_in_one_go(programs: Any, tmp_path: Path) -> None:
    """They are equal to the bit, including dropout. The third training restarts its data and so ends differently."""
    (tmp_path / "guide.gin").write_text(GUIDE)
    flags = ["--gin_file=guide.gin", f"--gin_search_paths={tmp_path},{CONFIGS}"]

    def train(model: str, steps: int, *more: str) -> None:
        model_dir = f'--gin.MODEL_DIR="{tmp_path}/{model}"'
        status, printed = programs.run("t5x.train", *flags, model_dir, f"--gin.TRAIN_STEPS={steps}", *more)
        assert status == 0, printed

    train("whole", 6)
    train("halves", 4)
    shutil.copytree(tmp_path / "halves", tmp_path / "forgetful")
    train("halves", 6)
    train("forgetful", 6, "--gin.utils.SaveCheckpointConfig.save_dataset=False")
    whole, halves, forgetful = (
        programs.call("observe", model_dir=model, final_step=6) for model in ("whole", "halves", "forgetful")
    )
    losses = [run["scalars"]["train"]["loss"] for run in (whole, halves, forgetful)]
    assert sorted(losses[0]) == ["1", "2", "3", "4", "5", "6"]
    assert losses[0] == losses[1]
    assert [step for step in losses[0] if losses[0][step] != losses[2][step]] == ["5", "6"]
    evaluations = [run["scalars"]["training_eval/sample_span_corruption"]["loss"] for run in (whole, halves, forgetful)]
    assert evaluations[0] == evaluations[1] != evaluations[2]
    for run in (whole, halves):
        run["final_state"]["state/step"].pop("dtype")  # restored with SaveCheckpointConfig.dtype, like everything
    assert whole["final_state"] == halves["final_state"]


TRAINER = "t5x.trainer:BaseTrainer.train"


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    """Returns the flags that train the recorded case t5_1_1 in ``model``."""
    (tmp_path / "case.gin").write_text(record("t5_1_1")["gin"])
    return ["--gin_file=case.gin", f'--gin.MODEL_DIR="{tmp_path}/model"']


@pytest.fixture
def t5x_checkpoint(tmp_path: Path) -> Path:
    """Makes a model folder with the checkpoint that T5X wrote at step 8."""
    shutil.copytree(REFERENCE / "checkpoint_8", tmp_path / "model/checkpoint_8")
    return tmp_path / "model"


@pytest.mark.embedded("T5X prints nothing at the end of a dry run")
def test_a_dry_run_reads_the_config_and_runs_nothing(programs: Any, config: list[str], tmp_path: Path) -> None:
    flags = ["--run_mode=train", "--dry_run", "--alsologtostderr", "--gin_search_paths=/,here"]
    (tmp_path / "here/sub").mkdir(parents=True)
    (tmp_path / "case.gin").rename(tmp_path / "here/sub/case.gin")
    status, printed = programs.run("t5x.main", *flags, "--gin_file=sub/case.gin", config[1], "--gin.TRAIN_STEPS=77")
    assert status == 0
    assert "TRAIN_STEPS = 77" in printed
    assert "The config is read; --dry_run ends here." in printed
    assert not (tmp_path / "model").exists()


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        ("t5x.train", ["--gin_fiel=case.gin"], "Unknown command line flag 'gin_fiel'. Did you mean: gin_file ?"),
        ("t5x.train", ["case.gin"], "Too many command-line arguments: only flags are taken, not case.gin"),
        (
            "t5x.main",
            [],
            "'run_mode' flag must be specified when using main.py. "
            "(--run_mode is one of train, eval, infer, precompile, export)",
        ),
        ("t5x.main", ["--run_mode=trian"], "value should be one of <train|eval|infer|precompile|export>"),
        ("t5x.main", ["--run_mode=train", "--gin_file=missing.gin"], "Unable to open file: missing.gin"),
        (
            "t5x.main",
            ["--run_mode=train", "--gin_file=case.gin", "--gin.trainer.Trainer.micro=2"],
            "'trainer.Trainer' doesn't have a parameter named 'micro'",
        ),
        ("t5x.eval", ["--gin_file=case.gin"], "t5x: error: the gin config cannot be read: "),
        ("t5x.train", ["--gin_file=broken.gin"], "broken.gin"),
        ("t5x.export", ["--gin_file=missing.gin"], "Unable to open file: missing.gin"),
    ],
)
@pytest.mark.usefixtures("config")
def test_what_cannot_be_run_is_told_without_a_traceback(
    programs: Any, tmp_path: Path, module: str, flags: list[str], message: str
) -> None:
    (tmp_path / "broken.gin").write_text("TRAIN_STEPS = = 3\n")
    status, printed = programs.run(module, *flags)
    assert status == 1
    assert message in " ".join(printed.split())
    assert "Traceback" not in printed


def test_a_limit_of_time_for_joining_is_refused_as_t5x_refuses_it(programs: Any) -> None:
    """T5X compares JAX's version with 0.4.15 as text, and so treats 0.10 as a version without such a limit."""
    with pytest.raises(
        RunRaised, match=r"ValueError: --initialization_timeout=2 needs JAX 0\.4\.15, and T5X takes "
    ) as error:
        programs.run("t5x.train", "--multiprocess_gpu", "--initialization_timeout=2", "--gin_file=missing.gin")
    assert "is the lower one: leave the flag out" in error.value.traceback


def test_every_flag_of_t5x_is_known(programs: Any) -> None:
    """``--help`` ends with status 1, as absl's does, and lists the flags under the script."""
    of_train = "multiprocess_gpu coordinator_address process_count process_index initialization_timeout"
    for module, flags in {
        "t5x.train": f"seqio_additional_cache_dirs {of_train}",
        "t5x.eval": "",
        "t5x.infer": "shard_id",
        "t5x.main": "dry_run run_mode",
    }.items():
        _, printed = programs.run(module, "--help")
        for flag in ("gin_file", "gin_bindings", "gin_search_paths", "tfds_data_dir", *flags.split()):
            assert f"--{flag}:" in printed or f"--[no]{flag}:" in printed, (module, flag)


@pytest.mark.journey
def test_an_interrupted_training_ends_as_if_it_had_not_been(programs: Any, config: list[str]) -> None:
    """It is killed at its seventh step. The position in the data is also restored from checkpoint_4."""
    flags = [*config, "--gin.utils.SaveCheckpointConfig.save_dataset=True"]
    programs.die("t5x.train", *flags, at=TRAINER, number=7)
    with programs.start() as run:
        assert run.call("run", module="t5x.train", flags=flags, timeout=240) == 0
        observed = run.call("observe", model_dir="model", final_step=8)
    # It is restored with SaveCheckpointConfig.dtype, like everything. T5X also saves a float after an interruption.
    expected = changed(record("t5_1_1"), "float32", "final_state", "state/step", "dtype")
    assert differences(expected, observed, Tolerance()) == []


@pytest.mark.journey
def test_the_checkpoint_of_another_run_is_restored_if_there_is_none(
    programs: Any, config: list[str], tmp_path: Path
) -> None:
    """The config has relative_steps, an evaluation before training, weight metrics and manual garbage collection."""
    (tmp_path / "more.gin").write_text(
        "from __gin__ import dynamic_registration\n"
        "import __main__ as train_script\n"
        "from t5x import trainer\n"
        "include 'case.gin'\n"
        "TRAIN_STEPS_RELATIVE = 1\n"
        "train_script.train.run_eval_before_training = True\n"
        "train_script.train.gc_period = 4\n"
        "trainer.Trainer.weight_metrics_computer = @trainer.WeightMetricsComputer()\n"
    )
    restore = [
        f'--gin.utils.RestoreCheckpointConfig.path="{REFERENCE}/checkpoint_8"',
        '--gin.utils.RestoreCheckpointConfig.mode="specific"',
    ]
    assert programs.run("t5x.train", "--gin_file=more.gin", config[1], *restore)[0] == 0
    scalars = programs.call("scalars", folder="model")
    assert scalars["train"]["loss"] == {"9": pytest.approx(203.37452697753906, rel=1e-4)}
    recorded_loss = record("t5_1_1_infer_eval")["scalars"]["training_eval/ref_reverse"]["loss"]["8"]
    assert scalars["training_eval/ref_reverse"]["loss"] == {
        "8": pytest.approx(recorded_loss, rel=1e-4),
        "9": pytest.approx(337.6026916503906, rel=1e-4),
    }
    assert "weight_rms/token_embedder/embedding" in scalars["train"]
    assert "weight_gradient_norm" in scalars["train"]
    assert (tmp_path / "model/checkpoint_8").is_dir()


@pytest.mark.embedded("T5X logs it otherwise")
def test_a_training_that_is_at_its_end_only_says_so(programs: Any, config: list[str], t5x_checkpoint: Path) -> None:
    status, printed = programs.run("t5x.train", *config, "--alsologtostderr")
    assert status == 0
    assert "The checkpoint is at step 8 and total_steps is 8: there is nothing to train." in printed
    assert [path.name for path in t5x_checkpoint.glob("checkpoint_*")] == ["checkpoint_8"]


@pytest.mark.embedded("T5X raises a bare ValueError")
def test_a_training_that_ends_before_its_checkpoint_fails(
    programs: Any, config: list[str], t5x_checkpoint: Path
) -> None:
    status, printed = programs.run("t5x.train", *config, "--gin.TRAIN_STEPS=4")
    assert status == 1
    assert (
        "t5x: error: train.total_steps (4) is less than the step of the checkpoint (8): it counts from step 0, so set "
        "TRAIN_STEPS above 8, or set train.relative_steps to the number of steps to add"
    ) in printed
    assert "Traceback" not in printed
    assert not (t5x_checkpoint / "train").exists()


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--gin.utils.SaveCheckpointConfig.period=6"],
            "t5x: error: SaveCheckpointConfig.period (6) must be a multiple of the shortest period, train.eval_period "
            "(4): set SaveCheckpointConfig.period to 8, or the two to the same number",
        ),
        (
            ['--gin.MODEL_DIR="model"'],
            "t5x: error: train.model_dir ('model') must be an absolute path, because checkpoints are saved in it: "
            "set MODEL_DIR to '",
        ),
        (
            ["--gin.train.actions={'TRAINING': []}"],
            "t5x: error: train.actions has TRAINING, but its keys must be among TRAIN, TRAIN_EVAL, INFER_EVAL",
        ),
    ],
)
def test_values_that_cannot_work_together_end_the_program_before_it_writes(
    programs: Any, config: list[str], tmp_path: Path, flags: list[str], message: str
) -> None:
    status, printed = programs.run("t5x.train", *config, *flags)
    assert status == 1
    assert message in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "model").exists()
