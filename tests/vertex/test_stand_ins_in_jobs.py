"""T5X trains in a job of ``serve --standins=missing`` on what no bucket has."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("google.cloud.aiplatform")
pytest.importorskip("google_crc32c", reason="needs the extra google")

TASKS = """
import seqio

vocabulary = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model")
seqio.TaskRegistry.add(
    "translate",
    source=seqio.TfdsDataSource("wmt_t2t_translate/de-en:1.0.0"),
    preprocessors=[
        lambda data: data.map(lambda row: {"inputs": row["en"], "targets": row["de"]}),
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={name: seqio.Feature(vocabulary) for name in ("inputs", "targets")},
)
"""
CONFIG = """
from __gin__ import dynamic_registration

import __main__ as train_script
import my_tasks
from t5x import utils

include "t5x/examples/t5/t5_1_1/tiny.gin"
include "t5x/configs/runs/finetune.gin"

INITIAL_CHECKPOINT_PATH = "gs://t5-data/pretrained_models/t5x/t5_1_1_tiny/checkpoint_1000"
MIXTURE_OR_TASK_NAME = "translate"
TASK_FEATURE_LENGTHS = {"inputs": 16, "targets": 16}
TRAIN_STEPS = 1_001
BATCH_SIZE = 8
DROPOUT_RATE = 0.0
USE_CACHED_TASKS = False
train_script.train:
  train_eval_dataset_cfg = None
  infer_eval_dataset_cfg = None
"""
SUBMIT = """
from google.cloud import aiplatform

aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://mine")
pool = {
    "machine_spec": {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V2", "accelerator_count": 8},
    "replica_count": 1,
    "container_spec": {
        "image_uri": "gcr.io/my-project/t5x-base",
        "command": ["python", "-m", "t5x.main"],
        "args": [
            "--run_mode=train",
            "--gin_file=/gcs/mine/finetune.gin",
            '--gin.MODEL_DIR="gs://mine/run"',
            "--tfds_data_dir=gs://theirs/tfds",
        ],
    },
}
aiplatform.CustomJob(display_name="train", worker_pool_specs=[pool]).run()
"""


def _with_lines(file: Path) -> dict[str, str]:
    """The environment of a shell that has read the lines of ``serve``."""
    lines = (line.removeprefix("export ").partition("=") for line in file.read_text().splitlines())
    return {**os.environ, **{name: "".join(shlex.split(value)) for name, _, value in lines}}


def test_a_job_of_serve_trains_on_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buckets = tmp_path / "cloud" / "buckets"
    (buckets / "mine").mkdir(parents=True)
    (buckets / "mine" / "finetune.gin").write_text(CONFIG)
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "my_tasks.py").write_text(TASKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "image"))  # what stands for the image has the tasks
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lines = tmp_path / "google.env"
    serve = [sys.executable, "-m", "t5x_harness", "serve", "--root=cloud", "--standins=missing", f"--env-file={lines}"]
    with subprocess.Popen(serve, cwd=tmp_path, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None
            while not lines.exists():
                assert server.poll() is None, server.stderr.read()
            submit = [sys.executable, "-c", SUBMIT]
            done = subprocess.run(submit, env=_with_lines(lines), capture_output=True, text=True, check=False)
            logs = "".join(log.read_text() for log in tmp_path.glob("t5x-harness-google-*/jobs/*/workerpool0-0.log"))
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr[-2000:] + logs[-4000:]
    assert "TFDS data wmt_t2t_translate/de-en:1.0.0 in gs://theirs/tfds: examples generated from its features" in logs
    assert {line for line in logs.splitlines() if line.startswith("t5x-harness: stand-in: ")} >= {
        "t5x-harness: stand-in: vocabulary gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model: 32,100 "
        "generated pieces, 100 of them sentinels",
        "t5x-harness: stand-in: checkpoint gs://t5-data/pretrained_models/t5x/t5_1_1_tiny/checkpoint_1000: generated "
        "in the model's shapes, at step 1000",
    }
    assert (buckets / "mine" / "run" / "checkpoint_1001").is_dir()
