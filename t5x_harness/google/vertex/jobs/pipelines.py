"""The methods of PipelineService for training pipelines. What becomes of one is what becomes of its job."""

from __future__ import annotations

from typing import Any

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.jobs.pipeline_tasks import BACKING_JOB, custom_job_of
from t5x_harness.google.vertex.messages.names import parent_of
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.services import Call, Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code

__all__ = ["cancel", "create", "delete", "follow_to_the_end", "get", "list_pipelines"]

# The states of pipelines have the numbers of those of jobs; what only jobs have is a failure of their pipeline.
_LAST_IN_COMMON = 8
_FAILED, _FINAL = 5, (4, 5, 7)


def create(call: Call) -> Message:
    """Creates a pipeline and its job."""
    pipeline = call.request.training_pipeline
    job = custom_job_of(call.services, pipeline)
    made = call.services.ask("JobService.CreateCustomJob", parent=call.request.parent, custom_job=job)
    pipeline.training_task_metadata.struct_value[BACKING_JOB] = made.name
    _follow(pipeline, made)
    return run_standard(call)


def get(call: Call) -> Message:
    """Returns a pipeline with the state of its job."""
    _look_after(call.services, call.request.name)
    return run_standard(call)


def list_pipelines(call: Call) -> Message:
    """Returns a page of pipelines with the states of their jobs."""
    for name in call.services.resources.names(call.request.parent, "trainingPipelines"):
        _look_after(call.services, name)
    return run_standard(call)


def cancel(call: Call) -> Message:
    """Cancels the job of a pipeline."""
    pipeline = call.services.resources.get(call.request.name, call.services.message("TrainingPipeline"))
    call.services.ask("JobService.CancelCustomJob", name=_job_name(pipeline))
    return empty_pb2.Empty()


def delete(call: Call) -> Message:
    """Deletes a pipeline that has ended."""
    _look_after(call.services, call.request.name)
    pipeline: Any = call.services.resources.get(call.request.name, call.services.message("TrainingPipeline"))
    if pipeline.state not in _FINAL:
        raise ApiError(
            Code.FAILED_PRECONDITION,
            f"The TrainingPipeline {pipeline.name} has not ended and cannot be deleted: cancel it first",
        )
    return run_standard(call)


def follow_to_the_end(services: Services, job: Any) -> None:
    """Gives the pipeline of a job that has ended, and is about to be deleted, the state of that job."""
    for name in services.resources.names(parent_of(job.name), "trainingPipelines"):
        pipeline = services.resources.find(name, services.message("TrainingPipeline"))
        if pipeline is not None and _job_name(pipeline) == job.name:
            _look_after(services, name)


def _look_after(services: Services, name: str) -> None:
    """Gives a pipeline the state that its job has; one that is not there, or whose job was deleted, stays as it is."""
    kind = services.message("TrainingPipeline")
    pipeline: Any = services.resources.find(name, kind)
    if pipeline is None or pipeline.state in _FINAL or not services.resources.exists(_job_name(pipeline)):
        return
    job = services.ask("JobService.GetCustomJob", name=_job_name(pipeline))
    if _state_of(job) != pipeline.state:
        services.resources.update(name, kind, lambda kept: _follow(kept, job))


def _follow(pipeline: Any, job: Any) -> None:
    pipeline.state = _state_of(job)
    for field in ("start_time", "end_time", "error"):
        if job.HasField(field):
            getattr(pipeline, field).CopyFrom(getattr(job, field))


def _state_of(job: Any) -> int:
    return int(job.state) if job.state <= _LAST_IN_COMMON else _FAILED


def _job_name(pipeline: Any) -> str:
    return str(pipeline.training_task_metadata.struct_value[BACKING_JOB])
