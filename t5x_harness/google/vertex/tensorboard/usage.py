"""What a Tensorboard tells of its use: who read how often in which month, and how much it holds."""

from __future__ import annotations

import time
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard, tensorboard_service
from google.protobuf.message import Message

from t5x_harness.google.identity import PROJECT
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import Call, Services
from t5x_harness.google.vertex.tensorboard.points import Points
from t5x_harness.google.vertex.tensorboard.tensorboards import tensorboard_of

_VIEWS = "views/"
_USER = f"t5x-harness@{PROJECT}.iam.gserviceaccount.com"
"""Whom every client of a session stands for."""


def read_usage(call: Call) -> Message:
    name = _get(call.services, call.request.tensorboard).name
    response: Any = tensorboard_service.ReadTensorboardUsageResponse.pb()()
    prefix = aspect_key(name, _VIEWS)
    for key in call.services.state.keys(prefix):
        of_month = response.monthly_usage_data[key.removeprefix(prefix)].user_usage_data.add(username=_USER)
        of_month.view_count = int(call.services.state.get(key) or 0)
    answer: Message = response
    return answer


def read_size(points: Points, call: Call) -> Message:
    size = points.size(_get(call.services, call.request.tensorboard).name)
    response: Message = tensorboard_service.ReadTensorboardSizeResponse.pb()(storage_size_byte=size)
    return response


def count_view(services: Services, series: str) -> None:
    """Counts that a time series was read, for its Tensorboard and the month."""
    key = aspect_key(tensorboard_of(series), _VIEWS + time.strftime("%Y%m", time.gmtime()))
    if not services.state.create(key, b"1"):
        services.state.update(key, lambda count: b"%d" % (int(count) + 1))


def _get(services: Services, name: str) -> Any:
    return services.resources.get(name, tensorboard.Tensorboard.pb())
