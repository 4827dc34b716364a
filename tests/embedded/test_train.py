"""The programs take T5X's flags, begin training at the right step, and refuse in one clear message what cannot run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from recorded import REFERENCE, Tolerance, changed, differences, record

from t5x_harness.workers.errors import RunRaised

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
