"""Methods that do not belong to one service: operations and projects."""

from __future__ import annotations

from google.longrunning.operations_pb2 import Operation
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.messages.lists import page_of, page_size
from t5x_harness.google.vertex.services import ApiCall
from t5x_harness.google.vertex.wire.errors import ApiNotEmulated

_WAIT_SECONDS = 60.0
_PAGE, _LARGEST_PAGE = 100, 1000


def get_operation(call: ApiCall) -> Message:
    return call.services.resources.get(call.request.name, Operation)


def list_operations(call: ApiCall) -> Message:
    request = call.request
    if request.filter:
        raise ApiNotEmulated(f"{PRODUCT} lists operations only without a filter")
    operations = call.services.resources.list(request.name.removesuffix("/operations"), "operations", Operation)
    page, token = page_of(operations, request, page_size(request, _PAGE, _LARGEST_PAGE))
    return call.rpc.response(operations=page, next_page_token=token)


def wait_operation(call: ApiCall) -> Message:
    """Waits until an operation is done, for a limited time."""
    asked = call.request.timeout.ToNanoseconds() / 1e9 if call.request.HasField("timeout") else _WAIT_SECONDS
    return call.services.operations.wait(call.request.name, min(asked, _WAIT_SECONDS))


def cancel_operation(call: ApiCall) -> Message:
    call.services.operations.cancel(call.request.name)
    return empty_pb2.Empty()


def delete_operation(call: ApiCall) -> Message:
    call.services.resources.delete(call.request.name)
    return empty_pb2.Empty()


def get_project(call: ApiCall) -> Message:
    """Returns a project with its number."""
    number = call.services.projects.number(call.request.name.removeprefix("projects/"))
    identifier = call.services.projects.identifier(number)
    return call.rpc.response(name=f"projects/{number}", project_id=identifier, display_name=identifier, state="ACTIVE")
