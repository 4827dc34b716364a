"""What a Tensorboard tells of its use: who read how often in which month, and how much it holds."""

from __future__ import annotations

import time
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard, tensorboard_service
from google.protobuf.message import Message

from t5x_harness.google.serving.folder import PROJECT
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.resources import aspect_key
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.tensorboard.points import Points
from t5x_harness.google.vertex.tensorboard.tensorboards import tensorboard_of

__all__ = ["count_view", "handlers"]

_VIEWS = "views/"
_USER = f"t5x-harness@{PROJECT}.iam.gserviceaccount.com"
"""Whom every client of a session stands for."""


def handlers(points: Points) -> Handlers:
    """The methods that tell of use."""
    made = Handlers()

    @made.on("TensorboardService.ReadTensorboardUsage")
    def read_usage(call: Call) -> Message:
        name = _get(call.api, call.request.tensorboard).name
        response: Any = tensorboard_service.ReadTensorboardUsageResponse.pb()()
        prefix = aspect_key(name, _VIEWS)
        for key in call.api.state.keys(prefix):
            of_month = response.monthly_usage_data[key.removeprefix(prefix)].user_usage_data.add(username=_USER)
            of_month.view_count = int(call.api.state.get(key) or 0)
        answer: Message = response
        return answer

    @made.on("TensorboardService.ReadTensorboardSize")
    def read_size(call: Call) -> Message:
        size = points.size(_get(call.api, call.request.tensorboard).name)
        response: Message = tensorboard_service.ReadTensorboardSizeResponse.pb()(storage_size_byte=size)
        return response

    return made


def count_view(api: Api, series: str) -> None:
    """Counts that a time series was read, for its Tensorboard and the month."""
    key = aspect_key(tensorboard_of(series), _VIEWS + time.strftime("%Y%m", time.gmtime()))
    if not api.state.create(key, b"1"):
        api.state.update(key, lambda count: b"%d" % (int(count) + 1))


def _get(api: Api, name: str) -> Any:
    return api.resources.get(name, tensorboard.Tensorboard.pb())
