"""The custom job that a training pipeline stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format

from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, NotEmulated, Violation

__all__ = ["BACKING_JOB", "custom_job_of"]

BACKING_JOB = "backingCustomJob"
"""The key in a pipeline's metadata that has the name of its job."""

_CUSTOM_TASK = re.compile(r"gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_[\d.]+\.yaml")


def custom_job_of(services: Services, pipeline: Any) -> Any:
    """The job that a pipeline asks for.

    Args:
      services: knows the messages.
      pipeline: a ``TrainingPipeline``.

    Raises:
      ApiError: INVALID_ARGUMENT for a pipeline that is none, UNIMPLEMENTED for one that is more than a custom job.
    """
    if faults := list(_faults(pipeline)):
        raise ApiError.of_violations(faults)
    if not _CUSTOM_TASK.fullmatch(pipeline.training_task_definition):
        raise _not_here(f"the training task {pipeline.training_task_definition}", "custom tasks run here")
    if pipeline.HasField("model_to_upload"):
        raise _not_here(
            "Model", "leave model_serving_container_image_uri out; what the job saves is in its AIP_MODEL_DIR"
        )
    if pipeline.HasField("input_data_config"):
        raise _not_here("Dataset", "leave the dataset out, and give the job the address of its data")
    job = services.message("CustomJob")(display_name=f"{pipeline.display_name}-custom-job", labels=pipeline.labels)
    if pipeline.HasField("encryption_spec"):
        job.encryption_spec.CopyFrom(pipeline.encryption_spec)
    inputs = json_format.MessageToDict(pipeline.training_task_inputs)
    if not isinstance(inputs, dict):
        message = "it must be an object with the fields of a CustomJobSpec, such as workerPoolSpecs"
        raise ApiError.of_violations([Violation("training_pipeline.training_task_inputs", message)])
    try:
        json_format.ParseDict(inputs, job.job_spec)
    except json_format.ParseError as error:
        raise ApiError.of_violations([Violation("training_pipeline.training_task_inputs", str(error))]) from None
    return job


def _faults(pipeline: Any) -> Iterator[Violation]:
    for field in ("display_name", "training_task_definition"):
        if not getattr(pipeline, field):
            yield Violation(f"training_pipeline.{field}", f"{field} is required.")


def _not_here(what: str, instead: str) -> ApiError:
    return NotEmulated(f"t5x-harness does not emulate {what} in a TrainingPipeline: {instead}")
