"""PipelineService, as far as it trains: a TrainingPipeline of a custom task, which is a custom job and its state.

It is what the SDK's ``CustomTrainingJob``, ``CustomPythonPackageTrainingJob`` and ``CustomContainerTrainingJob`` make.
Uploading models, and datasets, are other services.
"""

from __future__ import annotations

import functools

from t5x_harness.google.vertex.api.handlers import Part
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.training_pipelines.methods import HANDLERS, follow_to_the_end

__all__ = ["part"]


def part(api: Api) -> Part:
    """What the service adds to an API."""
    return Part(HANDLERS, deleting=functools.partial(follow_to_the_end, api))
