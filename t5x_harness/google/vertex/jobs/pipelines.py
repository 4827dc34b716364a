"""The methods of PipelineService for training pipelines of custom tasks, each of which follows a custom job."""

import re
from collections.abc import Iterator
from typing import Any

from google.cloud.aiplatform_v1.types import custom_job, training_pipeline
from google.protobuf import empty_pb2, json_format
from google.protobuf.message import Message

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex import models
from t5x_harness.google.vertex.jobs.replicas import JobPlace, job_variables
from t5x_harness.google.vertex.messages.names import parent_of
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.services import ApiCall, Method, Services
from t5x_harness.google.vertex.wire.errors import ApiError, ApiNotEmulated, FieldViolation, StatusCode, invalid_field

TrainingPipeline = training_pipeline.TrainingPipeline.pb()

BACKING_JOB = "backingCustomJob"
"""The key in a pipeline's metadata for the name of its job."""

_CUSTOM_TASK = re.compile(r"gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_[\d.]+\.yaml")


def custom_job_of(pipeline: Any) -> Any:
    """Returns the custom job that a pipeline asks for; raises ApiError if it is not valid, or asks for more."""
    required = ("display_name", "training_task_definition")
    if missing := [field for field in required if not getattr(pipeline, field)]:
        raise ApiError.of_violations(FieldViolation(f"training_pipeline.{f}", f"{f} is required.") for f in missing)
    if not _CUSTOM_TASK.fullmatch(pipeline.training_task_definition):
        raise _not_here(f"the training task {pipeline.training_task_definition}", "custom tasks run here")
    if pipeline.HasField("model_to_upload"):
        models.check_model(pipeline.model_to_upload, pipeline.model_id, pipeline.parent_model)
    if pipeline.HasField("input_data_config"):
        raise _not_here("Dataset", "leave the dataset out, and give the job the address of its data")
    job = custom_job.CustomJob.pb()(display_name=f"{pipeline.display_name}-custom-job", labels=pipeline.labels)
    if pipeline.HasField("encryption_spec"):
        job.encryption_spec.CopyFrom(pipeline.encryption_spec)
    inputs = json_format.MessageToDict(pipeline.training_task_inputs)
    if not isinstance(inputs, dict):
        message = "it must be an object with the fields of a CustomJobSpec, such as workerPoolSpecs"
        raise invalid_field("training_pipeline.training_task_inputs", message)
    try:
        json_format.ParseDict(inputs, job.job_spec)
    except json_format.ParseError as error:
        raise invalid_field("training_pipeline.training_task_inputs", str(error)) from None
    return job


def _not_here(what: str, instead: str) -> ApiError:
    return ApiNotEmulated(f"{PRODUCT} does not emulate {what} in a TrainingPipeline: {instead}")


# The states of pipelines have the same numbers as those of jobs. A state that only jobs have fails the pipeline.
_LAST_IN_COMMON = 8
_SUCCEEDED, _FAILED, _FINAL = 4, 5, (4, 5, 7)


def create(call: ApiCall) -> Message:
    pipeline = call.request.training_pipeline
    job = custom_job_of(pipeline)
    made = call.services.ask("JobService.CreateCustomJob", parent=call.request.parent, custom_job=job)
    pipeline.training_task_metadata.struct_value[BACKING_JOB] = made.name
    _follow(pipeline, made)
    return run_standard(call)


def get(call: ApiCall) -> Message:
    """Returns a pipeline with the state of its job."""
    _look_after(call.services, call.request.name)
    return run_standard(call)


def list_pipelines(call: ApiCall) -> Message:
    """Returns a page of pipelines with the states of their jobs."""
    look_after_all(call.services, call.request.parent)
    return run_standard(call)


def cancel(call: ApiCall) -> Message:
    pipeline = call.services.resources.get(call.request.name, TrainingPipeline)
    call.services.ask("JobService.CancelCustomJob", name=_job_name(pipeline))
    return empty_pb2.Empty()


def delete(call: ApiCall) -> Message:
    _look_after(call.services, call.request.name)
    pipeline: Any = call.services.resources.get(call.request.name, TrainingPipeline)
    if pipeline.state not in _FINAL:
        raise ApiError(
            StatusCode.FAILED_PRECONDITION,
            f"The TrainingPipeline {pipeline.name} has not ended and cannot be deleted: cancel it first",
        )
    return run_standard(call)


def look_after_all(services: Services, location: str) -> None:
    """Updates the pipelines of a location with the states of their jobs."""
    for name in services.resources.names(location, "trainingPipelines"):
        _look_after(services, name)


def _look_after(services: Services, name: str) -> None:
    """Updates a pipeline with the state of its job, if both still exist."""
    pipeline: Any = services.resources.find(name, TrainingPipeline)
    if pipeline is None or pipeline.state in _FINAL or not services.resources.exists(_job_name(pipeline)):
        return
    job = services.ask("JobService.GetCustomJob", name=_job_name(pipeline))
    if _state_of(job) == pipeline.state:
        return
    is_to_be_registered = pipeline.HasField("model_to_upload") and _state_of(job) == _SUCCEEDED
    result = _registered(services, pipeline, job) if is_to_be_registered else None

    def follow(kept: Any) -> None:
        _follow(kept, job)
        if isinstance(result, ApiError):
            kept.state = _FAILED
            kept.error.code, kept.error.message = result.code.number, result.message
        elif result is not None:
            kept.model_to_upload.name, kept.model_to_upload.version_id = result

    services.resources.update(name, TrainingPipeline, follow)


def _registered(services: Services, pipeline: Any, job: Any) -> tuple[str, str] | ApiError:
    """Registers the model that a pipeline has trained, which its job has written into AIP_MODEL_DIR.

    The model is registered only once, even if several clients look at the pipeline at the same time. The result is
    the model's name and the version's number, or the reason why it cannot be registered.
    """
    model = type(pipeline.model_to_upload)()
    model.CopyFrom(pipeline.model_to_upload)
    variables = job_variables(JobPlace.of(job.name), job.job_spec)
    model.artifact_uri = variables.get("AIP_MODEL_DIR", model.artifact_uri).rstrip("/")
    try:
        return models.register(
            services,
            parent_of(pipeline.name),
            model,
            model_id=pipeline.model_id,
            parent_model=pipeline.parent_model,
            pipeline=pipeline.name,
        )
    except ApiError as error:
        return error


def after_pipelines(method: Method) -> Method:
    """Wraps a method of models so that it sees the models of pipelines whose jobs have ended."""

    def run(call: ApiCall) -> Message | Iterator[Message]:
        name = call.request.parent if "parent" in call.request.DESCRIPTOR.fields_by_name else call.request.name
        look_after_all(call.services, "/".join(name.split("/")[:4]))
        return method(call)

    return run


def _follow(pipeline: Any, job: Any) -> None:
    pipeline.state = _state_of(job)
    for field in ("start_time", "end_time", "error"):
        if job.HasField(field):
            getattr(pipeline, field).CopyFrom(getattr(job, field))


def _state_of(job: Any) -> int:
    return int(job.state) if job.state <= _LAST_IN_COMMON else _FAILED


def _job_name(pipeline: Any) -> str:
    return str(pipeline.training_task_metadata.struct_value[BACKING_JOB])
