"""The sample trainer as a job of the emulated Vertex AI, sent by Google's own SDK from a separate process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.vertex.cloud import GoogleSession

pytest.importorskip("google.cloud.aiplatform")

EXECUTOR = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest"
PACKAGE = "gs://my-bucket/trainer-0.1.tar.gz"

# The SDK takes seconds to import, so one process runs all programs, one line of JSON each.
CLIENT = """
import json, sys, time, traceback
from google.cloud import aiplatform, storage
from google.cloud.aiplatform import hyperparameter_tuning as tuning

EXECUTOR, PACKAGE, asked, told = sys.argv[1], sys.argv[2], open(int(sys.argv[3])), open(int(sys.argv[4]), "w")
bucket = storage.Client().create_bucket("my-bucket")
bucket.blob("trainer-0.1.tar.gz").upload_from_filename("dist/trainer-0.1.tar.gz")
aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://my-bucket")

def pool(replicas, *args, machine="n1-standard-4"):
    package = {"executor_image_uri": EXECUTOR, "package_uris": [PACKAGE], "python_module": "trainer.task", "args": args}
    return {"machine_spec": {"machine_type": machine}, "replica_count": replicas, "python_package_spec": package}

def ended(job):
    job.submit()
    while job.state.name in ("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING"):
        time.sleep(0.1)  # job.run() would look every five seconds
    return job.state.name

for line in asked:
    names = {**globals(), "result": None}
    try:
        exec(compile(json.loads(line), "<client>", "exec"), names)
        answer = {"result": names["result"]}
    except Exception:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), file=told, flush=True)
"""


@pytest.fixture(scope="module")
def by_sdk(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Returns a function that runs a program with the SDK and the built package, and returns its ``result``."""
    source = repository / "sample_tasks" / "trainer_package"
    project = Path(shutil.copytree(source, tmp_path_factory.mktemp("trainer") / "project"))
    build = [sys.executable, "setup.py", "--quiet", "sdist", "--formats=gztar"]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (asked, asking), (telling, told) = os.pipe(), os.pipe()
    command = [sys.executable, "-c", CLIENT, EXECUTOR, PACKAGE, str(asked), str(told)]
    with GoogleSession() as session, open(asking, "w") as questions, open(telling) as answers:
        environment = {**os.environ, **session.environment()}
        client = subprocess.Popen(command, cwd=project, env=environment, pass_fds=(asked, told))
        os.close(asked)
        os.close(told)

        def run(program: str) -> Any:
            print(json.dumps(textwrap.dedent(program)), file=questions, flush=True)
            answer = json.loads(answers.readline() or '{"error": "the client ended"}')
            assert "error" not in answer, answer["error"]
            return answer["result"]

        yield run
        questions.close()
        client.wait()


@pytest.mark.journey
def test_one_pool(by_sdk: Callable[[str], Any]) -> None:
    result = by_sdk("""
        job = aiplatform.CustomJob(
            display_name="one", worker_pool_specs=[pool(1, "--steps=20")], base_output_dir="gs://my-bucket/one"
        )
        job.run()
        result = [job.state.name, json.loads(bucket.blob("one/model/metrics.json").download_as_text())]
    """)
    assert result[0] == "JOB_STATE_SUCCEEDED"
    assert result[1]["steps"] == 20
    assert result[1]["accuracy"] > 0.9


@pytest.mark.journey
def test_several_pools_find_each_other(by_sdk: Callable[[str], Any]) -> None:
    result = by_sdk("""
        job = aiplatform.CustomJob(
            display_name="several",
            worker_pool_specs=[pool(1, "--steps=20"), pool(2, "--steps=20")],
            base_output_dir="gs://my-bucket/several",
        )
        state = ended(job)
        parts = storage.Client().list_blobs("my-bucket", prefix=f"several/checkpoints/{job.name}/")
        result = [state, sorted(part.name.rpartition("/")[2] for part in parts)]
    """)
    assert result == ["JOB_STATE_SUCCEEDED", ["part-0.npz", "part-1.npz", "part-2.npz"]]


@pytest.mark.journey
def test_a_training_pipeline_of_the_package(by_sdk: Callable[[str], Any]) -> None:
    result = by_sdk("""
        training = aiplatform.CustomPythonPackageTrainingJob(
            "pipeline", python_package_gcs_uri=PACKAGE, python_module_name="trainer.task", container_uri=EXECUTOR
        )
        model = training.run(
            args=["--steps=20"], machine_type="n1-standard-4", replica_count=3, base_output_dir="gs://my-bucket/pipeline"
        )
        (job,) = [job for job in aiplatform.CustomJob.list() if job.display_name == "pipeline-custom-job"]
        parts = storage.Client().list_blobs("my-bucket", prefix=f"pipeline/checkpoints/{job.name}/")
        result = [model, training.state.name, job.state.name, len(list(parts))]
    """)
    assert result == [None, "PIPELINE_STATE_SUCCEEDED", "JOB_STATE_SUCCEEDED", 3]


@pytest.mark.journey
def test_a_trial_for_each_learning_rate(by_sdk: Callable[[str], Any]) -> None:
    pytest.importorskip("hypertune")
    result = by_sdk("""
        trial = aiplatform.CustomJob(
            display_name="trial", worker_pool_specs=[pool(1, "--steps=20")], base_output_dir="gs://my-bucket/tuned"
        )
        job = aiplatform.HyperparameterTuningJob(
            display_name="tuning",
            custom_job=trial,
            metric_spec={"loss": "minimize"},
            parameter_spec={"learning_rate": tuning.DoubleParameterSpec(min=0.01, max=1.0, scale="log")},
            max_trial_count=3,
            parallel_trial_count=3,
        )
        job.run()
        models = [blob.name for blob in storage.Client().list_blobs("my-bucket", prefix="tuned/")]
        result = [
            job.state.name,
            [[t.parameters[0].value, t.final_measurement.metrics[0].value] for t in job.trials],
            [name for name in models if name.endswith("model.npz")],
        ]
    """)
    state, trials, models = result
    assert state == "JOB_STATE_SUCCEEDED"
    by_rate = sorted(trials)
    assert [loss for _, loss in by_rate] == sorted((loss for _, loss in trials), reverse=True), "faster is better here"
    assert models == [f"tuned/{trial}/model/model.npz" for trial in (1, 2, 3)]


@pytest.mark.journey
def test_a_trainer_that_fails_ends_the_job_and_says_where_to_look(by_sdk: Callable[[str], Any]) -> None:
    result = by_sdk("""
        job = aiplatform.CustomJob(
            display_name="failing", worker_pool_specs=[pool(1, "--stepz=20")], base_output_dir="gs://my-bucket/failing"
        )
        result = [ended(job), job.error.message]
    """)
    assert result[0] == "JOB_STATE_FAILED"
    assert "The replica workerpool0-0 exited with a non-zero status of 2." in result[1]


def test_all_that_is_wrong_with_a_spec_is_said_at_once(by_sdk: Callable[[str], Any]) -> None:
    result = by_sdk("""
        from google.api_core.exceptions import InvalidArgument

        faulty = pool(2, machine="cloud-tpu")
        faulty["machine_spec"] |= {"accelerator_type": "TPU_V3", "accelerator_count": 4}
        try:
            aiplatform.CustomJob("faulty", [faulty], base_output_dir="gs://my-bucket/faulty").submit()
        except InvalidArgument as error:
            result = error.message
    """)
    assert result == (
        "List of found errors:"
        "\t1.Field: job_spec.worker_pool_specs[0].replica_count; Message: replica_count must be 1 for a TPU; given: 2: "
        "the hosts of a slice are not replicas, a larger one is asked for with a larger accelerator_count."
        "\t2.Field: job_spec.worker_pool_specs[0].machine_spec.accelerator_count; Message: TPU_V3 needs 8, 32, 64, … "
        "cores; 4 given: a v3-8 has 4 chips but 8 cores, so write 8.\t"
    )
