"""The command line: flags as T5X takes them, and one clear message for what cannot be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded import record

from t5x_harness.workers.errors import RunRaised


@pytest.fixture
def case(tmp_path: Path) -> str:
    (tmp_path / "case.gin").write_text(record("t5_1_1")["gin"])
    return f'--gin.MODEL_DIR="{tmp_path}/model"'


@pytest.mark.embedded("T5X prints nothing at the end of a dry run")
def test_a_dry_run_reads_the_config_and_runs_nothing(programs: Any, case: str, tmp_path: Path) -> None:
    flags = [
        "--run_mode=train",
        "--dry_run",
        "--alsologtostderr",
        "--gin_file=sub/case.gin",
        "--gin_search_paths=/,here",
    ]
    (tmp_path / "here/sub").mkdir(parents=True)
    (tmp_path / "case.gin").rename(tmp_path / "here/sub/case.gin")
    status, printed = programs.run("t5x.main", *flags, case, "--gin.TRAIN_STEPS=77")
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
def test_what_cannot_be_run_is_told_without_a_traceback(
    programs: Any, case: str, tmp_path: Path, module: str, flags: list[str], message: str
) -> None:
    (tmp_path / "broken.gin").write_text("TRAIN_STEPS = = 3\n")
    status, printed = programs.run(module, *flags)
    assert status == 1
    assert message in " ".join(printed.split())
    assert "Traceback" not in printed


def test_a_limit_of_time_for_joining_is_refused_as_t5x_refuses_it(programs: Any, case: str) -> None:
    """T5X compares JAX's version with 0.4.15 as text, and so takes 0.10 for one that knows no limit."""
    with pytest.raises(
        RunRaised, match=r"ValueError: --initialization_timeout=2 needs JAX 0\.4\.15, and T5X takes "
    ) as error:
        programs.run("t5x.train", "--multiprocess_gpu", "--initialization_timeout=2", "--gin_file=missing.gin")
    assert "is the lower one: leave the flag out" in error.value.traceback


def test_every_flag_of_t5x_is_known(programs: Any, case: str, tmp_path: Path) -> None:
    """Help ends with status 1, as absl's does, and lists them under the script."""
    for module, flags in {
        "t5x.train": [
            "gin_file", "gin_bindings", "gin_search_paths", "tfds_data_dir", "seqio_additional_cache_dirs",
            "multiprocess_gpu", "coordinator_address", "process_count", "process_index", "initialization_timeout",
        ],
        "t5x.eval": ["gin_file", "gin_bindings", "gin_search_paths", "tfds_data_dir"],
        "t5x.infer": ["gin_file", "gin_bindings", "gin_search_paths", "tfds_data_dir", "shard_id"],
        "t5x.main": ["gin_file", "gin_bindings", "gin_search_paths", "tfds_data_dir", "dry_run", "run_mode"],
    }.items():  # fmt: skip
        _, printed = programs.run(module, "--help")
        for flag in flags:
            assert f"--{flag}:" in printed or f"--[no]{flag}:" in printed, (module, flag)
