"""A sample config trains as a job of the emulated Vertex AI: checked, staged, run by T5X's main, and read back."""

from __future__ import annotations

import json
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
