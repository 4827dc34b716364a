"""Calls to an API in this process, made the way a client makes them, except for the transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["calls_to"]


def calls_to(api: Any) -> Callable[..., Any]:
    """Returns ``call``: ``call("JobService.GetCustomJob", name="…")`` returns the response's message.

    Fields are arguments of the request's class. A streamed response is a list of messages. Errors raise ``ApiError``.
    """
    from t5x_harness.google.vertex.wire.rpc_table import rpc_table

    def call(method: str, **fields: Any) -> Any:
        rpc = rpc_table()[method]
        data = rpc.request(**fields).SerializeToString()
        answers = [rpc.response.FromString(each) for each in api.stream(rpc.path, data)]
        return answers if rpc.streams else answers[0]

    return call
