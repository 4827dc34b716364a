"""T5X itself in jobs of the emulated Vertex AI: a submitted sample config, and the three jobs of a notebook.

The notebook's cells resemble those of the public notebook for getting started with T5X on Vertex AI, and of its
helpers. The SDK sends and follows the notebook's jobs in a separate process.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.sample_tasks import CONFIGS

pytest.importorskip("google.cloud.aiplatform")
pytest.importorskip("google_crc32c", reason="needs the extra google")


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_a_sample_config_trains_as_a_job(tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text("import t5x_harness.sample_tasks.tasks\n")
    (tmp_path / "short.gin").write_text(
        "import my_tasks\ninclude 'pretrain_span_corruption.gin'\nTRAIN_STEPS = 2\nBATCH_SIZE = 8\n"
    )
    command = [sys.executable, "-m", "t5x_harness", "submit", "short.gin", "--json"]
    where = ["--vertex=emulated", "--accelerator=v3-8", "--t5x-runtime=embedded", "--google-root=cloud", "--full-size"]
    done = subprocess.run(
        [*command, *where, f"--gin_search_paths={CONFIGS}", "--experiment=samples"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (sent,) = document["sent"]
    assert [stage["stage"] for stage in document["report"]["runs"][0]["stages"]] == ["lint", "resolve", "plan"]
    assert sent["state"] == "JOB_STATE_SUCCEEDED"
    assert sent["notes"] == []
    assert sent["devices"] == "8 x cpu: the emulated Vertex AI has no TPU"
    assert list(sent["metrics"]["train/loss"]) == ["2"]
    assert "training_eval/sample_span_corruption/loss" in sent["metrics"]
    model_dir = tmp_path / "cloud" / "buckets" / sent["model_dir"].removeprefix("gs://")
    assert (model_dir / "checkpoint_2").is_dir()
    assert "TRAIN_STEPS = 2" in (model_dir / "config.gin").read_text()


pytest.importorskip("google.cloud.aiplatform")
pytest.importorskip("gcsfs", reason="gcsfs is not installed")

# The config's run file is from the clone of T5X that the images have in their working directory.
MODEL = """
from __gin__ import dynamic_registration
import __main__ as {script}
import seqio
from t5x import utils
from t5x.examples.t5 import network
import t5x_harness.sample_tasks.tasks
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/t5x/configs/runs/{run}.gin'
VOCABULARY = @seqio.ByteVocabulary()
network.T5Config:
  vocab_size = 384
  num_encoder_layers = 1
  num_decoder_layers = 1
MIXTURE_OR_TASK_NAME = 'sample_sums'
TASK_FEATURE_LENGTHS = {{'inputs': 20, 'targets': 8}}
DROPOUT_RATE = 0.0
"""
TRAIN = """
INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/t5_1_1_tiny/checkpoint_1000'
TRAIN_STEPS = 1002
BATCH_SIZE = 8
train_script.train.eval_steps = 1
train_script.train.eval_period = 2
utils.SaveCheckpointConfig.period = 2
"""
READ = """
utils.DatasetConfig.batch_size = 40
utils.DatasetConfig.split = 'validation'
"""


@pytest.mark.journey
def test_a_notebook_trains_evaluates_and_infers(tmp_path: Path) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "finetune.gin").write_text(MODEL.format(script="train_script", run="finetune") + TRAIN)
    (configs / "eval.gin").write_text(MODEL.format(script="eval_script", run="eval") + READ)
    (configs / "infer.gin").write_text(MODEL.format(script="infer_script", run="infer") + READ)
    shutil.copy(Path(__file__).with_name("notebook_cells.py"), tmp_path)
    bucket = tmp_path / "cloud" / "buckets" / "my-team-bucket"
    shutil.copytree(CONFIGS.parent / "data" / "tfds", bucket / "datasets")
    exec_ = [sys.executable, "-m", "t5x_harness", "exec", "--slice=none", "--t5x-runtime=embedded"]
    done = subprocess.run(
        [*exec_, "--google-root=cloud", "--standins=missing", "--", sys.executable, "notebook_cells.py"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["states"] == dict.fromkeys(("train", "eval", "infer"), "JOB_STATE_SUCCEEDED"), done.stderr[-4000:]
    assert found["runs"] == ["eval-1", "infer-1", "train-1"]
    assert found["metrics"] == {"examples": 40.0}
    # The job generated the pretrained checkpoint at its place in Google's bucket.
    assert (tmp_path / "cloud/buckets/t5-data/pretrained_models/t5x/t5_1_1_tiny/checkpoint_1000").is_dir()
    runs = bucket / "experiments" / "translation" / "runs"
    assert "TRAIN_STEPS = 1002" in (runs / "train-1" / "config.gin").read_text()
    assert list((runs / "eval-1" / "inference_eval").iterdir())
    predictions = (runs / "infer-1" / "sample_sums-predict.jsonl-00000-of-00001").read_text().splitlines()
    assert len(predictions) == 40
    assert "prediction" in json.loads(predictions[0])
