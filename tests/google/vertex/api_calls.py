"""Calls to an API in this process, made the way a client makes them, except for the transport; and their location."""

from collections.abc import Callable
from typing import Any

PARENT = "projects/t5x-harness/locations/us-central1"
NUMBERED = "projects/100000000000/locations/us-central1"
"""The same location in the service's form."""
STORE, NUMBERED_STORE = (f"{location}/metadataStores/default" for location in (PARENT, NUMBERED))
Call = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]


def calls_to(api: Any) -> Call:
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
