"""A training pipeline of a custom task runs as a custom job, and takes over the job's state, errors and end."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, struct_pb2
from job_service import until

from t5x_harness.google.vertex.settings import VertexOptions, VertexSettings
from t5x_harness.google.vertex.state import open_store
from t5x_harness.google.vertex.wire.api import Api

PARENT = "projects/t5x-harness/locations/us-central1"
CUSTOM_TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
FINAL = (4, 5, 7)

Ask = Callable[..., Any]


@pytest.fixture
def api(tmp_path: Path) -> Any:
    """Yields an API whose images are interpreters."""
    options = VertexOptions(images={"*/python:*": "python -c"})
    api = Api(VertexSettings(tmp_path / "root", tmp_path / "jobs", options=options), open_store("memory:"))
    yield api
    api.close()


def pipeline(program: str = "print(1)", **fields: Any) -> dict[str, Any]:
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "gcr.io/my-project/python:3", "args": [program]},
    }
    made = {"display_name": "trainer", "training_task_definition": CUSTOM_TASK, **inputs_of(workerPoolSpecs=[pool])}
    return {**made, **fields}


def inputs_of(**fields: Any) -> dict[str, Any]:
    """Returns the inputs of a task."""
    inputs = struct_pb2.Value()
    json_format.ParseDict(fields, inputs)
    return {"training_task_inputs": inputs}


def create(call: Ask, *args: Any, **fields: Any) -> Any:
    return call("PipelineService.CreateTrainingPipeline", parent=PARENT, training_pipeline=pipeline(*args, **fields))


def ended(call: Ask, name: str) -> Any:
    return until(lambda: call("PipelineService.GetTrainingPipeline", name=name), lambda found: found.state in FINAL)


def job_of(call: Ask, made: Any) -> Any:
    return call("JobService.GetCustomJob", name=made.training_task_metadata.struct_value["backingCustomJob"])


def job_ended(call: Ask, made: Any) -> Any:
    return until(lambda: job_of(call, made), lambda job: job.state in FINAL)


def test_it_runs_a_job_and_ends_with_it(call: Ask) -> None:
    made = create(call, labels={"team": "nlp"})
    assert made.state == 1, "queued"
    found, job = ended(call, made.name), job_of(call, made)
    assert found.state == job.state == 4
    assert found.start_time == job.start_time
    assert found.end_time == job.end_time
    assert job.display_name == "trainer-custom-job"
    assert job.labels == {"team": "nlp"}
    assert job.job_spec.worker_pool_specs[0].container_spec.args == ["print(1)"]


def test_a_job_that_fails_fails_it_with_its_error(call: Ask) -> None:
    made = create(call, "raise SystemExit(3)")
    found = ended(call, made.name)
    assert found.state == 5
    assert found.error == job_of(call, made).error
    assert "exited with a non-zero status of 3" in found.error.message


def test_cancelling_it_cancels_the_job(call: Ask, refused: Ask) -> None:
    made = create(call, "import time; time.sleep(600)")
    _, message = refused("PipelineService.DeleteTrainingPipeline", name=made.name)
    assert "has not ended and cannot be deleted: cancel it first" in message
    call("PipelineService.CancelTrainingPipeline", name=made.name)
    assert ended(call, made.name).state == job_of(call, made).state == 7
    call("PipelineService.DeleteTrainingPipeline", name=made.name)
    assert refused("PipelineService.GetTrainingPipeline", name=made.name)[0] == "NOT_FOUND"


def test_lists_are_of_now_and_can_be_filtered_by_state(call: Ask) -> None:
    first, second = create(call), create(call, display_name="other")
    for made in (first, second):
        job_ended(call, made)
    listed = call("PipelineService.ListTrainingPipelines", parent=PARENT, filter='state="PIPELINE_STATE_SUCCEEDED"')
    assert [each.name for each in listed.training_pipelines] == [second.name, first.name], "newest first"


def test_a_job_that_is_deleted_before_anyone_looks_leaves_it_ended(call: Ask) -> None:
    made, other = create(call, "raise SystemExit(3)"), create(call, "import time; time.sleep(600)")
    job = job_ended(call, made)
    call("JobService.DeleteCustomJob", name=job.name)
    found = call("PipelineService.GetTrainingPipeline", name=made.name)
    assert (found.state, found.error, found.end_time) == (5, job.error, job.end_time)
    assert call("PipelineService.GetTrainingPipeline", name=other.name).state not in FINAL


MODEL = {"display_name": "t5", "container_spec": {"image_uri": "gcr.io/my-project/serve:1"}}
SAVES = """
import os, pathlib
folder = pathlib.Path(os.environ["AIP_MODEL_DIR"].replace("gs://", os.environ["BUCKETS"] + "/"))
folder.mkdir(parents=True)
(folder / "checkpoint").write_text("1")
"""


def training(program: str, buckets: Path) -> Any:
    """Returns the inputs of a task that saves to a folder in a bucket."""
    inputs = pipeline(program)["training_task_inputs"]
    pool = inputs.struct_value["workerPoolSpecs"][0]
    pool["containerSpec"]["env"] = [{"name": "BUCKETS", "value": str(buckets)}]
    inputs.struct_value["baseOutputDirectory"] = {"outputUriPrefix": "gs://bucket/run"}
    return inputs


def test_the_model_to_upload_is_registered_once(call: Ask, tmp_path: Path) -> None:
    inputs = training(SAVES, tmp_path / "root/buckets")
    made = create(call, training_task_inputs=inputs, model_to_upload=MODEL)
    job_ended(call, made)
    with ThreadPoolExecutor(4) as threads:
        looks = list(threads.map(lambda _: ended(call, made.name), range(4)))
    (model,) = call("ModelService.ListModels", parent=PARENT).models
    assert {(each.state, each.model_to_upload.name, each.model_to_upload.version_id) for each in looks} == {
        (4, model.name, "1")
    }
    assert (model.artifact_uri, model.training_pipeline) == ("gs://bucket/run/model", made.name)
    again = create(call, training_task_inputs=training("", tmp_path), model_to_upload=MODEL, parent_model=model.name)
    job_ended(call, again)
    assert call("ModelService.GetModel", name=f"{model.name}@2").training_pipeline == again.name, "nobody has looked"
    assert ended(call, again.name).model_to_upload.version_id == "2"


def test_a_job_that_saves_no_model_fails_its_pipeline(call: Ask, tmp_path: Path) -> None:
    made = create(call, training_task_inputs=training("print(1)", tmp_path), model_to_upload=MODEL)
    found = ended(call, made.name)
    assert (found.state, job_of(call, made).state) == (5, 4)
    assert found.error.message == 'There are no files under "gs://bucket/run/model" to copy.'
    assert not found.model_to_upload.name
    assert not call("ModelService.ListModels", parent=PARENT).models


BAD_MACHINE = {"machine_spec": {"machine_type": "v3-32"}}
TABULAR = CUSTOM_TASK.replace("custom_task", "automl_tabular")


NO_NAMES = {"display_name": "", "training_task_definition": ""}
REFUSED = [
    ({"model_to_upload": {"display_name": "t5"}}, ".Field: model.container_spec.image_uri; Message: the image of the"),
    (
        inputs_of(worker_pool_specs=[BAD_MACHINE]),
        ".Field: job_spec.worker_pool_specs[0].machine_spec.machine_type; ",
    ),
    (
        inputs_of(workerPools=[]),
        "Field: training_pipeline.training_task_inputs; Message: Message type "
        '"google.cloud.aiplatform.v1.CustomJobSpec" has no field named "workerPools"',
    ),
    (
        NO_NAMES,
        "List of found errors:\t1.Field: training_pipeline.display_name; Message: display_name is required.\t"
        "2.Field: training_pipeline.training_task_definition; Message: training_task_definition is required.\t",
    ),
]
NOT_HERE = [
    ({"input_data_config": {"dataset_id": "1"}}, "Dataset in a TrainingPipeline: leave the dataset out, and give"),
    ({"training_task_definition": TABULAR}, f"the training task {TABULAR} in"),
]


@pytest.mark.parametrize(
    ("fields", "code", "expected"),
    [
        *((fields, "INVALID_ARGUMENT", message) for fields, message in REFUSED),
        *((fields, "UNIMPLEMENTED", f"t5x-harness does not emulate {message}") for fields, message in NOT_HERE),
    ],
)
def test_what_is_refused_leaves_nothing(
    call: Ask, refused: Ask, fields: dict[str, Any], code: str, expected: str
) -> None:
    given = pipeline(**fields)
    found, message = refused("PipelineService.CreateTrainingPipeline", parent=PARENT, training_pipeline=given)
    assert (found, expected in message) == (code, True), message
    assert not call("PipelineService.ListTrainingPipelines", parent=PARENT).training_pipelines
    assert not call("JobService.ListCustomJobs", parent=PARENT).custom_jobs
