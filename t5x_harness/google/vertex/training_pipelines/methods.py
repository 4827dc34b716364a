"""The methods of PipelineService for training pipelines. What becomes of one is what becomes of its job."""

from __future__ import annotations

from typing import Any

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Code
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.names import parent_of
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.training_pipelines.custom_task import BACKING_JOB, custom_job_of

__all__ = ["HANDLERS", "follow_to_the_end"]

HANDLERS = Handlers()

# The states of pipelines have the numbers of those of jobs; what only jobs have is a failure of their pipeline.
_LAST_IN_COMMON = 8
_FAILED, _FINAL = 5, (4, 5, 7)


@HANDLERS.on("PipelineService.CreateTrainingPipeline")
def _create(call: Call) -> Message:
    pipeline = call.request.training_pipeline
    job = custom_job_of(call.api, pipeline)
    made = _ask(call.api, "CreateCustomJob", parent=call.request.parent, custom_job=job)
    pipeline.training_task_metadata.struct_value[BACKING_JOB] = made.name
    _follow(pipeline, made)
    return call.standard()


@HANDLERS.on("PipelineService.GetTrainingPipeline")
def _get(call: Call) -> Message:
    _look_after(call.api, call.request.name)
    return call.standard()


@HANDLERS.on("PipelineService.ListTrainingPipelines")
def _list(call: Call) -> Message:
    for name in call.api.resources.names(call.request.parent, "trainingPipelines"):
        _look_after(call.api, name)
    return call.standard()


@HANDLERS.on("PipelineService.CancelTrainingPipeline")
def _cancel(call: Call) -> Message:
    pipeline = call.api.resources.get(call.request.name, call.api.message("TrainingPipeline"))
    _ask(call.api, "CancelCustomJob", name=_job_name(pipeline))
    return empty_pb2.Empty()


@HANDLERS.on("PipelineService.DeleteTrainingPipeline")
def _delete(call: Call) -> Message:
    _look_after(call.api, call.request.name)
    pipeline: Any = call.api.resources.get(call.request.name, call.api.message("TrainingPipeline"))
    if pipeline.state not in _FINAL:
        raise ApiError(
            Code.FAILED_PRECONDITION,
            f"The TrainingPipeline {pipeline.name} has not ended and cannot be deleted: cancel it first",
        )
    return call.standard()


def follow_to_the_end(api: Api, job: Any) -> None:
    """Gives the pipeline of a job that has ended, and is about to be deleted, the state of that job."""
    for name in api.resources.names(parent_of(job.name), "trainingPipelines"):
        pipeline = api.resources.find(name, api.message("TrainingPipeline"))
        if pipeline is not None and _job_name(pipeline) == job.name:
            _look_after(api, name)


def _look_after(api: Api, name: str) -> None:
    """Gives a pipeline the state that its job has; one that is not there, or whose job was deleted, stays as it is."""
    kind = api.message("TrainingPipeline")
    pipeline: Any = api.resources.find(name, kind)
    if pipeline is None or pipeline.state in _FINAL or not api.resources.exists(_job_name(pipeline)):
        return
    job = _ask(api, "GetCustomJob", name=_job_name(pipeline))
    if _state_of(job) != pipeline.state:
        api.resources.update(name, kind, lambda kept: _follow(kept, job))


def _follow(pipeline: Any, job: Any) -> None:
    pipeline.state = _state_of(job)
    for field in ("start_time", "end_time", "error"):
        if job.HasField(field):
            getattr(pipeline, field).CopyFrom(getattr(job, field))


def _state_of(job: Any) -> int:
    return int(job.state) if job.state <= _LAST_IN_COMMON else _FAILED


def _job_name(pipeline: Any) -> str:
    return str(pipeline.training_task_metadata.struct_value[BACKING_JOB])


def _ask(api: Api, method: str, **fields: Any) -> Any:
    """Calls a method of JobService as a client would; nothing of it is recorded."""
    path = f"/google.cloud.aiplatform.v1.JobService/{method}"
    rpc = api.rpc(path)
    assert rpc is not None
    answer = api.call(path, rpc.request(**fields).SerializeToString(), api.authority.token, transport="")
    return rpc.response.FromString(answer)
