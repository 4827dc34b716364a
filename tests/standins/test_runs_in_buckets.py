"""A config whose includes, data, checkpoint and output lie in buckets runs as it is, in buckets of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.google.pool import GooglePool
from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.run import Run
from t5x_harness.spec import Outcome, RunSettings, RunSpec, RuntimeChoice
from t5x_harness.workers import Zygote

TASKS = """
import seqio
import tensorflow as tf
from t5x_harness.sample_tasks import metrics


@seqio.map_over_dataset
def split(line):
    parts = tf.strings.split(line, "\\t")
    return {"inputs": parts[0], "targets": parts[1]}


seqio.TaskRegistry.add(
    "lines",
    source=seqio.TextLineDataSource({s: f"gs://my-bucket/data/{s}.tsv" for s in ("train", "validation")}),
    preprocessors=[split, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={name: seqio.Feature(seqio.ByteVocabulary()) for name in ("inputs", "targets")},
    metric_fns=[metrics.accuracy],
)
"""

CONFIG = """
from __gin__ import dynamic_registration
import seqio
import tasks
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/finetune.gin'
include '/gcs/my-bucket/configs/sizes.gin'
MIXTURE_OR_TASK_NAME = 'lines'
TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}
TRAIN_STEPS = 700
USE_CACHED_TASKS = False
DROPOUT_RATE = 0.0
LOSS_NORMALIZING_FACTOR = 100
VOCABULARY = @seqio.ByteVocabulary()
INITIAL_CHECKPOINT_PATH = 'gs://their-bucket/model/checkpoint_500'
MODEL_DIR = 'gs://my-bucket/runs/first'
"""


@pytest.fixture
def buckets(tmp_path: Path) -> Path:
    """The user's folder of buckets, with what an earlier job left in MODEL_DIR."""
    bucket = tmp_path / "buckets" / "my-bucket"
    for name in ("data", "configs", "runs/first/train"):
        (bucket / name).mkdir(parents=True)
    for split in ("train", "validation"):
        (bucket / "data" / f"{split}.tsv").write_text("".join(f"reverse {n}\t{n} esrever\n" for n in range(20)))
    (bucket / "configs" / "sizes.gin").write_text("BATCH_SIZE = 8\n")
    (bucket / "runs" / "first" / "train" / "events.out.tfevents.old").write_text("of an earlier job")
    return tmp_path / "buckets"


@pytest.mark.journey
def test_a_config_in_buckets_runs_as_it_is(zygote: Zygote, tmp_path: Path, buckets: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "run.gin").write_text(CONFIG)
    spec = RunSpec(
        ("run.gin",),
        slice="v3:1x1",
        runtime=RuntimeChoice.EMBEDDED,
        python_path=(str(tmp_path),),
        cwd=str(tmp_path),
        settings=RunSettings(gcs_root=str(buckets)),
    )
    google = GooglePool(spec.settings.gcs_root, spec.settings.gcs)
    try:
        with Run(spec, LocalExecutor(zygote, timeout=300, google=google), workspace=tmp_path / "w") as run:
            for found in run.finish():
                assert found.outcome is Outcome.PASSED, (found.findings, found.log_tail)
            result = run.result()
        # What is here afterwards does not depend on the buckets, which the next run gets anew.
        google.enter()
    finally:
        google.close()
    changed = {change.binding for stage in result.stages for change in stage.changes}
    assert "MODEL_DIR" not in changed
    assert {c.why for stage in result.stages for c in stage.changes if c.binding == "INITIAL_CHECKPOINT_PATH"} == {
        "standin"
    }
    assert result.standins == ("INITIAL_CHECKPOINT_PATH: 'gs://their-bucket/model/checkpoint_500'",)
    assert (result.model_dir, result.steps) == (str(tmp_path / "w" / "model"), 504)
    assert [checkpoint.step for checkpoint in result.checkpoints] == [500, 502, 504]
    assert all(Path(checkpoint.path).is_dir() for checkpoint in result.checkpoints)
    assert "MODEL_DIR = 'gs://my-bucket/runs/first'" in Path(result.model_dir, "config.gin").read_text()
    assert sorted(result.metrics["train/loss"]) == [501, 502, 503, 504]
    assert dict(result.stage("train").facts)["restored"].startswith("checkpoint_504: ")
    assert result.predictions
    assert sorted(path.name for path in (buckets / "my-bucket" / "runs" / "first").rglob("*")) == [
        "events.out.tfevents.old", "train",
    ]  # fmt: skip
