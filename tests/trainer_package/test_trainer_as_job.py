"""The sample trainer in a pipeline and in trials of the emulated Vertex AI, sent by Google's own SDK."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.vertex.cloud import GoogleSession

pytest.importorskip("google.cloud.aiplatform")
pytest.importorskip("hypertune")

PROGRAM = """
import json
from google.cloud import aiplatform, storage
from google.cloud.aiplatform import hyperparameter_tuning

EXECUTOR, PACKAGE = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest", "gs://my-bucket/trainer-0.1.tar.gz"
bucket = storage.Client().create_bucket("my-bucket")
bucket.blob("trainer-0.1.tar.gz").upload_from_filename("dist/trainer-0.1.tar.gz")
aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://my-bucket")
training = aiplatform.CustomPythonPackageTrainingJob(
    "pipeline", python_package_gcs_uri=PACKAGE, python_module_name="trainer.task", container_uri=EXECUTOR
)
model = training.run(
    args=["--steps=20"], machine_type="n1-standard-4", replica_count=3, base_output_dir="gs://my-bucket/pipeline"
)
(job,) = [job for job in aiplatform.CustomJob.list() if job.display_name == "pipeline-custom-job"]
parts = bucket.list_blobs(prefix=f"pipeline/checkpoints/{job.name}/")
pipeline = [model, training.state.name, job.state.name, sorted(part.name.rpartition("/")[2] for part in parts)]

package = {
    "executor_image_uri": EXECUTOR, "package_uris": [PACKAGE], "python_module": "trainer.task", "args": ["--steps=20"]
}
pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "python_package_spec": package}
tuning = aiplatform.HyperparameterTuningJob(
    display_name="tuning",
    custom_job=aiplatform.CustomJob("trial", worker_pool_specs=[pool], base_output_dir="gs://my-bucket/tuned"),
    metric_spec={"loss": "minimize"},
    parameter_spec={"learning_rate": hyperparameter_tuning.DoubleParameterSpec(min=0.01, max=1.0, scale="log")},
    max_trial_count=3,
    parallel_trial_count=3,
)
tuning.run()
trials = [[trial.parameters[0].value, trial.final_measurement.metrics[0].value] for trial in tuning.trials]
models = [blob.name for blob in bucket.list_blobs(prefix="tuned/") if blob.name.endswith("model.npz")]
print(json.dumps([pipeline, tuning.state.name, trials, models]))
"""


@pytest.mark.journey
def test_the_package_in_a_pipeline_and_a_trial_for_each_learning_rate(repository: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(repository / "sample_tasks" / "trainer_package", tmp_path / "project"))
    build = [sys.executable, "setup.py", "--quiet", "sdist", "--formats=gztar"]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    with GoogleSession() as session:
        environment, command = {**os.environ, **session.environment()}, [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pipeline, state, trials, models = json.loads(done.stdout.splitlines()[-1])
    parts = ["part-0.npz", "part-1.npz", "part-2.npz"]
    assert pipeline == [None, "PIPELINE_STATE_SUCCEEDED", "JOB_STATE_SUCCEEDED", parts]
    assert state == "JOB_STATE_SUCCEEDED"
    assert [loss for _, loss in sorted(trials)] == sorted((loss for _, loss in trials), reverse=True), (
        "faster is better"
    )
    assert models == [f"tuned/{trial}/model/model.npz" for trial in (1, 2, 3)]
