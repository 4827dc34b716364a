"""The sample trainer: run here, as several replicas, built into the distribution that jobs install, and in jobs."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from t5x_harness.google.vertex.validation.judging import judge
from t5x_harness.vertex.cloud import GoogleSession

# In the form that the service was observed to write.
CLUSTER = {
    "cluster": {
        "workerpool0": ["cmle-training-workerpool0-1d969d3ba6-0:2222"],
        "workerpool1": ["cmle-training-workerpool1-1d969d3ba6-0:2222", "cmle-training-workerpool1-1d969d3ba6-1:2222"],
    },
    "environment": "cloud",
    "job": json.dumps({"python_module": "", "package_uris": [], "job_args": []}),
}


BUILD = [sys.executable, "setup.py", "--quiet", "sdist", "--formats=gztar"]


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    """Copies the project, so that nothing is left in the source tree."""
    return Path(shutil.copytree(repository / "sample_tasks" / "trainer_package", tmp_path / "project"))


def start(project: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIP_", "CLUSTER_", "CLOUD_ML_"))}
    command = [sys.executable, "-m", "trainer.task", *arguments]
    return subprocess.Popen(
        command, cwd=project, env={**kept, **variables}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out


def task_of(pool: str, index: int) -> Mapping[str, str]:
    return {"CLUSTER_SPEC": json.dumps({**CLUSTER, "task": {"type": pool, "index": index}}), "CLOUD_ML_JOB_ID": "17"}


def test_it_runs_here(project: Path) -> None:
    assert finish(start(project, "--steps=20")).splitlines()[-1].startswith("on other points: loss 0.0")
    metrics = json.loads((project / "output" / "model" / "metrics.json").read_text())
    assert metrics["steps"] == 20
    assert metrics["accuracy"] > 0.9


def test_folders_are_the_jobs_where_there_is_one(project: Path, tmp_path: Path) -> None:
    job = {"AIP_MODEL_DIR": f"{tmp_path}/model/", "AIP_CHECKPOINT_DIR": f"{tmp_path}/checkpoints/"}
    finish(start(project, "--steps=1", **job))
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["metrics.json", "model.npz"]
    assert not (project / "output").exists()


def test_replicas_train_on_a_share_each_and_the_primary_averages(project: Path) -> None:
    waiting = start(project, "--steps=20", **task_of("workerpool0", 0))
    others = [start(project, "--steps=20", **task_of("workerpool1", index)) for index in (0, 1)]
    assert [finish(process).split(":")[0] for process in others] == ["replica 1 of 3", "replica 2 of 3"]
    assert finish(waiting).startswith("replica 0 of 3: loss 0.")
    output = project / "output"
    parts = [np.load(output / "checkpoints" / "17" / f"part-{rank}.npz")["weights"] for rank in range(3)]
    assert len({tuple(weights) for weights in parts}) == 3, "each trained on other points"
    np.testing.assert_allclose(np.load(output / "model" / "model.npz")["weights"], np.mean(parts, axis=0))


def test_a_replica_that_does_not_come_is_named(project: Path) -> None:
    process = start(project, "--steps=1", "--patience=0.1", **task_of("workerpool0", 0))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        "TimeoutError: output/checkpoints/17/part-1.npz did not come within 0.1 s: did its replica fail?"
    )


def test_the_distribution_holds_the_package_and_no_results(project: Path) -> None:
    finish(start(project, "--steps=1"))
    subprocess.run(BUILD, cwd=project, check=True, capture_output=True)
    with tarfile.open(project / "dist" / "trainer-0.1.tar.gz") as archive:
        modules = {name for name in archive.getnames() if name.endswith(".py")}
        others = {Path(name).parts[1] for name in archive.getnames() if "/" in name} - {"trainer", "trainer.egg-info"}
    names = ("setup", "trainer/__init__", "trainer/model", "trainer/replica", "trainer/task")
    assert modules == {f"trainer-0.1/{name}.py" for name in names}
    assert others == {"PKG-INFO", "README.md", "setup.cfg", "setup.py"}


@pytest.mark.parametrize("name", ["config.yaml", "tuning.yaml"])
def test_its_configs_are_what_the_service_takes(repository: Path, name: str) -> None:
    yaml, types = pytest.importorskip("yaml"), pytest.importorskip("google.cloud.aiplatform_v1.types")
    from google.protobuf import json_format

    config = yaml.safe_load((repository / "sample_tasks" / "trainer_package" / name).read_text())
    if name == "config.yaml":
        job = json_format.ParseDict({"displayName": "trainer", "jobSpec": config}, types.CustomJob.pb()())
    else:
        counts = {"maxTrialCount": 2, "parallelTrialCount": 1}
        document = {"displayName": "tuning", **counts, **config}
        job = json_format.ParseDict(document, types.HyperparameterTuningJob.pb()())
    verdict = judge(job, "us-central1")
    assert verdict.violations == ()
    assert verdict.warnings == ()


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
def test_the_package_in_a_pipeline_and_a_trial_for_each_learning_rate(project: Path) -> None:
    pytest.importorskip("google.cloud.aiplatform")
    pytest.importorskip("hypertune")
    subprocess.run(BUILD, cwd=project, check=True, capture_output=True)
    with GoogleSession() as session:
        environment, command = {**os.environ, **session.environment()}, [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pipeline, state, trials, models = json.loads(done.stdout.splitlines()[-1])
    parts = ["part-0.npz", "part-1.npz", "part-2.npz"]
    assert pipeline == [None, "PIPELINE_STATE_SUCCEEDED", "JOB_STATE_SUCCEEDED", parts]
    assert state == "JOB_STATE_SUCCEEDED"
    losses = [loss for _, loss in sorted(trials)]
    assert losses == sorted(losses, reverse=True), "faster is better here"
    assert models == [f"tuned/{trial}/model/model.npz" for trial in (1, 2, 3)]
