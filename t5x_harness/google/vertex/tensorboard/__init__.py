"""TensorboardService: Tensorboards, experiments, runs, time series and their data."""

from __future__ import annotations

from t5x_harness.google.vertex.api.handlers import Handlers, Part
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.tensorboard import reading, runs, tensorboards, usage, writing
from t5x_harness.google.vertex.tensorboard.points import Points

__all__ = ["part"]


def part(api: Api) -> Part:
    """What the service adds to an API."""
    points = Points(api.state)
    return Part(
        Handlers(
            tensorboards.HANDLERS,
            runs.HANDLERS,
            writing.handlers(points),
            reading.handlers(points),
            usage.handlers(points),
        )
    )
