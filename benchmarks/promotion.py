"""Compares the cost of `pytest -m tpu --t5x-vertex=emulated` with `pytest -m smoke` on the same test.

    python benchmarks/promotion.py [--rounds 3] [--write docs/performance.md]

Each round measures one figure after another, so that a machine whose speed drifts slows all of them alike, with a
compile cache that earlier calls filled:

smoke     `pytest -m smoke` on one test that trains one config with `t5x_run`
promoted  `pytest -m tpu --t5x-vertex=emulated` on it: the emulated Google Cloud starts, and training is a job of its
          Vertex AI, sent with Google's SDK
running   from the call that creates a job of one small command until its state is RUNNING, on an emulated Vertex AI
          that has loaded Google's library; the state is requested every 5 ms

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reporting import report, script
from smoke import CONFIGS, call

CONFIG = "finetune_sums.gin"
TEST = f"""
import pytest

@pytest.mark.smoke
@pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8)
def test_training(t5x_run):
    result = t5x_run("{CONFIG}")
    assert result.steps == 10_004 and len(result.metrics["train/loss"]) == 4
"""
PYTEST = (script("pytest"), "-q", "-p", "no:cacheprovider")
SMOKE = (*PYTEST, "-m", "smoke")
PROMOTED = (*PYTEST, "-m", "tpu", "--t5x-vertex=emulated")
STATE_SECONDS = 0.005


def running() -> float:
    """Returns the seconds until a job runs. It needs a separate process: gRPC keeps its first certificates."""
    from t5x_harness.vertex.emulated import emulated_google

    with emulated_google(warm=True):
        from google.cloud import aiplatform_v1 as v1

        client = v1.JobServiceClient(client_options={"api_endpoint": "us-central1-aiplatform.googleapis.com"})
        container = v1.ContainerSpec(image_uri="europe-docker.pkg.dev/vertex-ai/training/tf-cpu", command=["true"])
        pool = v1.WorkerPoolSpec(
            machine_spec=v1.MachineSpec(machine_type="n1-standard-4"), replica_count=1, container_spec=container
        )
        job = v1.CustomJob(display_name="job", job_spec=v1.CustomJobSpec(worker_pool_specs=[pool]))
        parent = "projects/t5x-harness/locations/us-central1"
        list(client.list_custom_jobs(parent=parent))
        start = time.perf_counter()
        name = client.create_custom_job(parent=parent, custom_job=job).name
        reached = (v1.JobState.JOB_STATE_RUNNING, v1.JobState.JOB_STATE_SUCCEEDED)
        while client.get_custom_job(name=name).state not in reached:
            time.sleep(STATE_SECONDS)
        return time.perf_counter() - start


def measure(project: Path, cache: Path) -> dict[str, float]:
    """Makes one round."""
    smoke = call(SMOKE, cache, project)
    promoted = call(PROMOTED, cache, project)
    done = subprocess.run([sys.executable, __file__, "running"], capture_output=True, text=True, check=True)
    return {"smoke": smoke, "promoted": promoted, "running": float(done.stdout), "promoted / smoke": promoted / smoke}


if __name__ == "__main__":
    if sys.argv[1:] == ["running"]:
        print(running())
        sys.exit()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = folder / "project"
        shutil.copytree(CONFIGS / "models", project / "models")
        shutil.copy(CONFIGS / CONFIG, project)
        (project / "test_training.py").write_text(TEST, encoding="utf-8")
        for command in (SMOKE, PROMOTED):  # they fill the compile cache
            call(command, folder / "cache", project)
        report("promotion", functools.partial(measure, project, folder / "cache"), rounds=3, description=__doc__)
