"""The checkpoint that a run starts from, the reason, and the problems of the one that the config names."""

from collections.abc import Callable
from pathlib import Path

from t5x_harness.findings.rule import evaluated, inferred
from t5x_harness.spec import Finding, Outcome, Severity, StageResult

Plan = Callable[..., StageResult]
Find = Callable[..., Finding]

SPLIT = "utils.DatasetConfig.split = 'validation'"


def restore(path: Path | str, mode: str = "specific") -> tuple[str, str]:
    return f"utils.RestoreCheckpointConfig.path = '{path}'", f"utils.RestoreCheckpointConfig.mode = '{mode}'"


def start(result: StageResult) -> str:
    return dict(result.facts)["starts from"]


def test_a_checkpoint_in_model_dir_comes_before_the_one_that_the_config_names(plan: Plan, tmp_path: Path) -> None:
    for step in (20, 100):
        (tmp_path / f"run/checkpoint_{step}").mkdir(parents=True)
    result = plan(f"MODEL_DIR = '{tmp_path}/run'", *restore("gs://bucket/t5/checkpoint_1000000"))
    assert start(result) == f"{tmp_path}/run/checkpoint_100: it is the latest in MODEL_DIR, where T5X looks first"
    assert dict(result.facts)["checkpoints written"].startswith("10, from step 1100 each 1000 steps to 10000")


def test_without_one_it_is_the_one_that_the_config_names(plan: Plan) -> None:
    result = plan("TRAIN_STEPS = 1_000_100", *restore("gs://bucket/t5/checkpoint_1000000"))
    assert start(result) == "gs://bucket/t5/checkpoint_1000000: the config names it"
    assert "whether gs://bucket/t5/checkpoint_1000000 fits the model: it cannot be read here" in result.not_checked


def test_of_several_restore_configs_the_one_that_the_run_has_counts(find: Find, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_20").mkdir(parents=True)
    scoped = [f"second/{line}" for line in restore(tmp_path / "run")]
    chosen = "utils.CheckpointConfig.restore = @second/utils.RestoreCheckpointConfig()"
    finding = find("CKP05", *restore("gs://bucket/t5/checkpoint_1000000"), *scoped, chosen)
    assert finding.binding == "second/utils.RestoreCheckpointConfig.path"
    assert finding.fix == f"use {tmp_path}/run/checkpoint_20"


def test_orbax_takes_no_list_of_checkpoints(find: Find) -> None:
    """With any list, T5X raises a TypeError; without orbax, it evaluates one checkpoint after the other."""
    gin = evaluated(SPLIT, "EVAL_OUTPUT_DIR = '/x'", "CHECKPOINT_PATH = ['gs://b/checkpoint_1']")
    finding = find("CKP19", gin=gin)
    assert finding.message == "evaluation with orbax restores one path, and the path is a list of 1"
    assert (
        finding.fix == "write one path without brackets, or bind eval_script.evaluate.use_orbax = False" or finding.fix
    )


def test_a_manager_that_takes_no_directory_is_not_one_of_orbax(find: Find, plan: Plan) -> None:
    """T5X calls it with a directory, and Python raises a TypeError; without orbax, T5X makes its own."""
    manager = "utils.RestoreCheckpointConfig.checkpoint_manager_cls"
    gin = evaluated(SPLIT, "EVAL_OUTPUT_DIR = '/x'", "CHECKPOINT_PATH = 'gs://b/checkpoint_1'")
    gin += f"{manager} = @utils.LegacyCheckpointManager\n"
    finding = find("CKP19", gin=gin)
    assert finding.binding == manager
    assert finding.message == (
        "checkpoint_manager_cls is LegacyCheckpointManager, which takes no directory, and T5X gives it one"
    )
    assert not plan(gin=f"{gin}eval_script.evaluate.use_orbax = False\n").errors


def test_each_checkpoint_of_a_list_is_looked_for(plan: Plan, tmp_path: Path) -> None:
    for step in (20, 100):
        (tmp_path / f"run/checkpoint_{step}/checkpoint").mkdir(parents=True)
    paths = [f"{tmp_path}/run/checkpoint_{step}" for step in (20, 100, 200)]
    gin = evaluated(SPLIT, "EVAL_OUTPUT_DIR = '/x'", f"CHECKPOINT_PATH = {paths}")
    result = plan(gin=f"{gin}eval_script.evaluate.use_orbax = False\n")
    (finding,) = result.errors
    message = f"there is no {tmp_path}/run/checkpoint_200; beside it are checkpoint_20, checkpoint_100"
    assert (finding.code, finding.message, finding.fix) == ("CKP04", message, "correct the step")


def test_an_empty_list_of_paths_is_from_scratch(plan: Plan) -> None:
    assert start(plan()) == "scratch: the config names no checkpoint"


def test_the_latest_of_a_folder(plan: Plan, tmp_path: Path) -> None:
    for step in (20, 100):
        (tmp_path / f"run/checkpoint_{step}").mkdir(parents=True)
    result = plan(*restore(tmp_path / "run", "latest"))
    assert start(result) == f"{tmp_path}/run/checkpoint_100: it is the latest in {tmp_path}/run"


def test_all_of_a_folder_are_evaluated(plan: Plan, tmp_path: Path) -> None:
    for step in (20, 100, 200):
        (tmp_path / f"run/checkpoint_{step}").mkdir(parents=True)
    gin = evaluated(SPLIT, "EVAL_OUTPUT_DIR = '/x'", f"CHECKPOINT_PATH = '{tmp_path}/run'")
    result = plan(gin=f"{gin}utils.RestoreCheckpointConfig.mode = 'all'\n")
    assert start(result).endswith(f"checkpoint_200: it is the latest in {tmp_path}/run, and 2 more after it")


def test_the_mode_latest_of_one_checkpoint_trains_from_scratch(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_20/state").mkdir(parents=True)
    path = tmp_path / "run/checkpoint_20"
    result = plan(*restore(path, "latest"))
    assert start(result) == f"scratch: there is no checkpoint in {path}"
    finding = next(f for f in result.findings if f.code == "CKP05")
    assert finding.message == (
        f"{path} is one checkpoint, and mode 'latest' looks for checkpoints in it: T5X finds none, trains from scratch "
        "and succeeds"
    )
    assert finding.fix == "set mode = 'specific', or name the folder above it"
    assert result.outcome is Outcome.FAILED


def test_the_same_is_known_of_a_path_that_cannot_be_read(find: Find) -> None:
    finding = find("CKP05", *restore("gs://bucket/t5/checkpoint_1000000", "latest"))
    assert finding.message.startswith("gs://bucket/t5/checkpoint_1000000 is one checkpoint, and mode 'latest' looks")


def test_a_folder_without_checkpoints_is_a_warning_for_training(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = plan(*restore(tmp_path / "empty", "latest"))
    assert next(f for f in result.findings if f.code == "CKP05").message == (
        f"{tmp_path}/empty holds no checkpoint_N: T5X trains from scratch and succeeds"
    )
    assert result.outcome is Outcome.PASSED


def test_whatever_python_takes_for_false_asks_for_t5xs_older_layout(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_20/state").mkdir(parents=True)
    (tmp_path / "run/checkpoint_20/state/_METADATA").touch()
    for value in ("None", "0"):
        result = plan(f"train_script.train.use_orbax = {value}", *restore(tmp_path / "run/checkpoint_20"))
        assert next(f for f in result.findings if f.code == "CKP08").fix == "drop use_orbax = False"


def test_a_folder_that_holds_nothing_is_not_a_checkpoint(find: Find, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_20").mkdir(parents=True)
    finding = find("CKP04", *restore(tmp_path / "run/checkpoint_20"))
    assert finding.message == (
        f"{tmp_path}/run/checkpoint_20 holds no checkpoint: there is neither a folder state (orbax) nor a file "
        "checkpoint (T5X's older layout) in it"
    )


def test_of_a_path_orbax_takes_the_step_and_makes_the_name_anew(find: Find, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_20/state").mkdir(parents=True)
    result = plan(*restore(tmp_path / "run/checkpoint_020"))
    assert start(result).startswith(f"{tmp_path}/run/checkpoint_20: ")
    assert "CKP04" not in {finding.code for finding in result.findings}
    (tmp_path / "run/checkpoint_07/state").mkdir(parents=True)
    missing = find("CKP04", *restore(tmp_path / "run/checkpoint_07"))
    assert missing.message.startswith(f"there is no {tmp_path}/run/checkpoint_7; beside it are ")
    assert missing.severity is Severity.ERROR


def test_the_folder_of_a_run_that_is_missing_beside_checkpoints(find: Find, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_20").mkdir(parents=True)
    finding = find("CKP04", *restore(tmp_path / "run/checkpoint_", "latest"))
    assert finding.severity is Severity.ERROR
    assert finding.message.endswith(
        "checkpoint_, and mode 'latest' needs the folder of a run; beside it are checkpoint_20"
    )
    assert finding.fix == f"name {tmp_path}/run"


def test_the_latest_step_is_looked_for_without_a_zero_in_front(find: Find, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_07/state").mkdir(parents=True)
    finding = find("CKP04", *restore(tmp_path / "run", "latest"))
    run = f"{tmp_path}/run"
    assert finding.message == f"T5X takes step 7 from checkpoint_07 in {run}, and looks for {run}/checkpoint_7"
    assert finding.fix == "rename checkpoint_07 to checkpoint_7"
    (tmp_path / "run/checkpoint_7/state").mkdir(parents=True)
    assert find("CKP05", *restore(tmp_path / "run")).fix == f"use {run}/checkpoint_7"


def test_a_name_without_a_step_is_not_a_checkpoint(find: Find, tmp_path: Path) -> None:
    finding = find("CKP05", *restore(tmp_path / "best"))
    assert finding.message == (
        f"{tmp_path}/best does not end in checkpoint_ and a step, from which T5X takes the step to restore"
    )


def test_inference_takes_its_path_as_it_is(find: Find, tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint_20").mkdir(parents=True)
    gin = inferred(SPLIT, "INFER_OUTPUT_DIR = '/x'", f"CHECKPOINT_PATH = '{tmp_path}/run'")
    finding = find("CKP05", gin=f"{gin}utils.RestoreCheckpointConfig.mode = 'latest'\n")
    assert finding.fix == f"use {tmp_path}/run/checkpoint_20"


def test_an_empty_path_does_not_start_from_scratch(find: Find) -> None:
    assert find("CKP04", *restore("")).fix == "write [] to start from scratch"
