"""Programs under ``exec --shrink`` shrink their config themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "t5x_harness", "exec", "--t5x-runtime=embedded")
CONFIG = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x.examples.t5 import network
import t5x_harness.sample_tasks.tasks
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'sample_classify'
TASK_FEATURE_LENGTHS = {'inputs': 512, 'targets': 128}
TRAIN_STEPS = 5000
BATCH_SIZE = 128
DROPOUT_RATE = 0.0
network.T5Config.emb_dim = 512
"""


def run(*words: str, cwd: Path, options: tuple[str, ...] = ("--shrink",)) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options, "--", *words], cwd=cwd, env={**os.environ}, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the output of t5x.main under exec --shrink for a config that it reads but does not run."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "run.gin").write_text(CONFIG)
    arguments = ("--run_mode=train", "--gin_file=run.gin", "--gin.MODEL_DIR='model'", "--dry_run")
    done = run(sys.executable, "-m", "t5x.main", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


@pytest.mark.journey
def test_what_is_made_small_is_said(dry: str) -> None:
    said = [line.partition("shrink: ")[2] for line in dry.splitlines() if line.startswith("t5x-harness: shrink: ")]
    assert "TRAIN_STEPS = 4 (was 5000)" in said
    assert "BATCH_SIZE = 8 (was 128)" in said
    assert "network.T5Config.emb_dim = 32 (was 512)" in said
    assert "TASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 16} (was {'inputs': 512, 'targets': 128})" in said
    assert "RANDOM_SEED = 0 (was None; repeatable)" in said
    assert said[-1] == "examples of each task that eval and infer read = 8 (was all)"


def test_a_program_that_parses_no_config_is_said_to_run_as_it_is(tmp_path: Path) -> None:
    done = run(sys.executable, "-c", "import t5x.utils", cwd=tmp_path)
    expected = "nothing: this program has not read Gin flags by t5x.gin_utils.parse_gin_flags"
    assert f"t5x-harness: shrink: {expected}\n" in done.stderr


def test_other_programs_say_nothing(tmp_path: Path) -> None:
    done = run(sys.executable, "-c", "print('fine')", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("fine\n", "")
