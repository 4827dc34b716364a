"""Methods that belong to no one service: operations, and the project's number."""

from __future__ import annotations

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import NotEmulated
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.pages import PageToken, page_bounds, page_size

__all__ = ["HANDLERS"]

HANDLERS = Handlers()

_WAIT_SECONDS = 60.0
_PAGE, _LARGEST_PAGE = 100, 1000


@HANDLERS.on("Operations.GetOperation")
def _get(call: Call) -> Message:
    return call.api.operations.get(call.request.name)


@HANDLERS.on("Operations.ListOperations")
def _list(call: Call) -> Message:
    request = call.request
    if request.filter:
        raise NotEmulated("t5x-harness lists operations without filters only")
    operations = call.api.operations.list(request.name.removesuffix("/operations"))
    first, end = page_bounds([o.name for o in operations], request, page_size(request, _PAGE, _LARGEST_PAGE))
    token = PageToken(operations[end - 1].name, end).encode(request) if end < len(operations) else ""
    return call.rpc.response(operations=operations[first:end], next_page_token=token)


@HANDLERS.on("Operations.WaitOperation")
def _wait(call: Call) -> Message:
    asked = call.request.timeout.ToNanoseconds() / 1e9 if call.request.HasField("timeout") else _WAIT_SECONDS
    return call.api.operations.wait(call.request.name, min(asked, _WAIT_SECONDS))


@HANDLERS.on("Operations.CancelOperation")
def _cancel(call: Call) -> Message:
    call.api.operations.cancel(call.request.name)
    return empty_pb2.Empty()


@HANDLERS.on("Operations.DeleteOperation")
def _delete(call: Call) -> Message:
    call.api.operations.delete(call.request.name)
    return empty_pb2.Empty()


@HANDLERS.on("Projects.GetProject")
def _project(call: Call) -> Message:
    number = call.api.projects.number(call.request.name.removeprefix("projects/"))
    identifier = call.api.projects.identifier(number)
    return call.rpc.response(name=f"projects/{number}", project_id=identifier, display_name=identifier, state="ACTIVE")
