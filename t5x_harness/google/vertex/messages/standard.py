"""The standard methods of every kind of resource (AIP-131 to AIP-135), long-running operations, and projects.

Every operation is done when its method answers, because no method takes long here.
"""

import contextlib
import random
import re
from collections.abc import Callable
from typing import Any

from google.longrunning.operations_pb2 import Operation
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.messages.lists import list_page, page_of, page_size
from t5x_harness.google.vertex.messages.names import ResourceKind, is_resource, parent_of, verb_of
from t5x_harness.google.vertex.messages.paths import apply_mask, is_repeated
from t5x_harness.google.vertex.services import ApiCall
from t5x_harness.google.vertex.wire.errors import ApiError, ApiNotEmulated, StatusCode, invalid_field, not_found
from t5x_harness.google.vertex.wire.rpc_table import message_class

_PAGE, _LARGEST_PAGE = 100, 1000
_GIVEN_ID, _WITH_CAPITALS = re.compile(r"[a-z0-9][a-z0-9-]{0,127}"), re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,127}")


def run_standard(call: ApiCall) -> Message:
    """Answers a standard method according to the common rules; raises ApiError."""
    found = verb_of(call.rpc)
    assert found is not None, f"{call.rpc.name} has no standard form"
    verb, kind = found
    return _RUN[verb](call, kind)


def _create(call: ApiCall, kind: ResourceKind) -> Message:
    request = call.request
    if is_resource(request.parent) and not call.services.resources.exists(request.parent):
        raise not_found(request.parent)
    given: str = getattr(request, f"{kind.field}_id", "")
    pattern = _WITH_CAPITALS if kind.capitals else _GIVEN_ID
    if given and not pattern.fullmatch(given):
        raise invalid_field(f"{kind.field}_id", f"{given!r} does not match {pattern.pattern}")
    name = f"{request.parent}/{kind.collection}/{given or random_id()}"
    made = call.services.resources.create(name, getattr(request, kind.field))
    return answered(call, made, about=made.name)


def random_id() -> str:
    return str(random.randrange(10**18, 9 * 10**18))


def _list(call: ApiCall, kind: ResourceKind) -> Message:
    parent = call.request.parent
    if is_resource(parent) and "/-" not in parent and not call.services.resources.exists(parent):
        raise not_found(parent)
    (field,) = (f for f in call.rpc.response.DESCRIPTOR.fields if is_repeated(f) and f.message_type is not None)
    resources = call.services.resources.list(parent, kind.collection, kind.message)
    return list_page(call, kind, resources, field.name)


def _update(call: ApiCall, kind: ResourceKind) -> Message:
    request = call.request
    given = getattr(request, kind.field)
    if getattr(request, "allow_missing", False) and not call.services.resources.exists(given.name):
        if not call.services.resources.exists(parent_of(given.name)):
            raise not_found(parent_of(given.name))
        return answered(call, call.services.resources.create(given.name, given), about=given.name)

    def change(kept: Any) -> None:
        check_etag(kind.name, getattr(given, "etag", ""), getattr(kept, "etag", ""), StatusCode.ABORTED)
        apply_mask(kept, given, request.update_mask.paths)

    return answered(call, call.services.resources.update(given.name, type(given), change), about=given.name)


def _delete(call: ApiCall, kind: ResourceKind) -> Message:
    request = call.request

    def check(kept: bytes) -> None:
        message: Any = kind.message.FromString(kept)
        check_etag(kind.name, request.etag, message.etag, StatusCode.FAILED_PRECONDITION)

    call.services.resources.delete(request.name, check if getattr(request, "etag", "") else None)
    return answered(call, empty_pb2.Empty(), about=parent_of(request.name))


_RUN: dict[str, Callable[[ApiCall, ResourceKind], Message]] = {
    "Create": _create,
    "Get": lambda call, _: call.services.resources.get(call.request.name, call.rpc.response),
    "List": _list,
    "Update": _update,
    "Delete": _delete,
}


def check_etag(kind: str, given: str, kept: str, code: StatusCode) -> None:
    """Raises ApiError with a code if a write was based on another version of a resource."""
    if given and given != kept:
        raise ApiError(code, f"Specified {kind} `etag`: `{given}` does not match server `etag`: `{kept}`")


def answered(call: ApiCall, result: Message, about: str) -> Message:
    """Returns a method's result, wrapped in an operation if the method answers with one.

    Args:
      about: the full name of the resource that is created or changed, or the parent of a deleted one.
    """
    if call.rpc.response is not Operation:
        return result
    operation = Operation(done=True)
    operation.response.Pack(result)
    method = call.rpc.method
    common = ["DeleteOperationMetadata"] if method.startswith("Delete") else []
    for kind in (f"{method}OperationMetadata", f"{method}Metadata", *common):
        with contextlib.suppress(KeyError):  # the library has no class of this name
            metadata: Any = message_class(kind)()
            metadata.generic_metadata.create_time.FromNanoseconds(call.services.clock.now())
            metadata.generic_metadata.update_time.CopyFrom(metadata.generic_metadata.create_time)
            operation.metadata.Pack(metadata)
            break
    # Like Google's numbers, these are longer than a float can hold, so clients have to treat them as text.
    return call.services.resources.create(f"{about}/operations/{random_id()}", operation)


def get_operation(call: ApiCall) -> Message:
    """Returns an operation; there is nothing to wait for."""
    return call.services.resources.get(call.request.name, Operation)


def list_operations(call: ApiCall) -> Message:
    request = call.request
    if request.filter:
        raise ApiNotEmulated(f"{PRODUCT} lists operations only without a filter")
    operations = call.services.resources.list(request.name.removesuffix("/operations"), "operations", Operation)
    page, token = page_of(operations, request, page_size(request, _PAGE, _LARGEST_PAGE))
    return call.rpc.response(operations=page, next_page_token=token)


def cancel_operation(call: ApiCall) -> Message:
    """Does nothing to an operation, because every operation is already done."""
    get_operation(call)
    return empty_pb2.Empty()


def delete_operation(call: ApiCall) -> Message:
    call.services.resources.delete(call.request.name)
    return empty_pb2.Empty()


def get_project(call: ApiCall) -> Message:
    """Returns a project with its number."""
    number = call.services.projects.number(call.request.name.removeprefix("projects/"))
    identifier = call.services.projects.identifier(number)
    return call.rpc.response(name=f"projects/{number}", project_id=identifier, display_name=identifier, state="ACTIVE")
