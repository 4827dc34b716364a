"""Runs of tiny configs with the embedded T5X, forked from one warmed process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import t5x_in_use
from local_run import LocalRun
from small_model import MODEL

from t5x_harness.spec import RunSpec
from t5x_harness.workers.zygote import Zygote


def pytest_configure() -> None:
    """Makes the T5X in use importable, because test modules import what uses it at their top."""
    t5x_in_use.use()


HERE = Path(__file__).parent
REFERENCE = HERE.parent / "reference"

TRAIN = """
TRAIN_STEPS = 4
BATCH_SIZE = 8
USE_CACHED_TASKS = False
RANDOM_SEED = 0
train_script.train.eval_period = 2
train_script.train.eval_steps = 2
train_script.train.stats_period = 1
utils.SaveCheckpointConfig.period = 2
"""

TWO_DEVICES = "v3:1x1"


@pytest.fixture
def backend(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[..., LocalRun]]:
    """Makes a run from gin text; ``extra`` is appended to it and ``replace`` swaps a part of it.

    The run's process gets the variables in ``env``.
    """
    opened = []

    def make(text: str, *, extra: str = "", replace: tuple[str, str] | None = None, **options: Any) -> LocalRun:
        if replace:
            assert replace[0] in text
            text = text.replace(*replace)
        file = tmp_path / "config.gin"
        file.write_text(text + extra)
        on_progress, env = options.pop("on_progress", None), options.pop("env", {})
        spec = RunSpec(
            gin_files=(str(file),),
            slice=options.pop("slice", TWO_DEVICES),
            runtime=t5x_in_use.name,
            python_path=(str(HERE), str(REFERENCE)),
            cwd=str(tmp_path),
        ).with_settings(**options)
        run = LocalRun(spec, zygote=zygote, workspace=tmp_path / "run", timeout=300, on_progress=on_progress, env=env)
        opened.append(run)
        return run

    yield make
    for run in opened:
        run.close()


@pytest.fixture
def train_text() -> str:
    """A train config as small as shrinking would make it."""
    return MODEL.format(mode="train", run="pretrain") + TRAIN


@pytest.fixture
def infer_eval_text() -> str:
    """Text for the end of a train config, which then also decodes and scores the validation split."""
    return """
train_script.train.infer_eval_dataset_cfg = @infer_eval/utils.DatasetConfig()
infer_eval/utils.DatasetConfig:
  mixture_or_task_name = %MIXTURE_OR_TASK_NAME
  task_feature_lengths = %TASK_FEATURE_LENGTHS
  split = 'validation'
  batch_size = 8
  shuffle = False
  seed = 42
"""


@pytest.fixture
def eval_text() -> str:
    """An eval config without a checkpoint."""
    return MODEL.format(mode="eval", run="eval") + "utils.DatasetConfig.batch_size = 8\n"


@pytest.fixture
def infer_text() -> str:
    """An infer config whose checkpoint is in a bucket."""
    return (
        MODEL.format(mode="infer", run="infer")
        + "utils.DatasetConfig.batch_size = 8\nCHECKPOINT_PATH = 'gs://nowhere/model/checkpoint_1234'\n"
    )


@pytest.fixture
def recorded() -> Callable[[str], dict[str, Any]]:
    """The recorded outcome of T5X itself for a case."""
    return lambda case: json.loads((REFERENCE / "trajectories" / f"{case}.json").read_text())
