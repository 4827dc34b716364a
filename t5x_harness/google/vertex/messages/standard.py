"""The standard methods of every kind of resource: create, get, list, update and delete (AIP-131 to AIP-135)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.lists import list_page
from t5x_harness.google.vertex.messages.names import ResourceKind, is_resource, parent_of, verb_of
from t5x_harness.google.vertex.messages.paths import apply_mask, is_repeated
from t5x_harness.google.vertex.operations import metadata_of
from t5x_harness.google.vertex.services import ApiCall
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, invalid_field, not_found

_GIVEN_ID, _WITH_CAPITALS = re.compile(r"[a-z0-9][a-z0-9-]{0,127}"), re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,127}")


def run_standard(call: ApiCall) -> Message:
    """Answers a standard method by the common rules; raises ApiError."""
    found = verb_of(call.rpc)
    assert found is not None, f"{call.rpc.name} has no standard form"
    verb, kind = found
    return _RUN[verb](call, kind)


def _create(call: ApiCall, kind: ResourceKind) -> Message:
    request = call.request
    if is_resource(request.parent) and not call.services.resources.exists(request.parent):
        raise not_found(request.parent)
    made = call.services.resources.create(
        f"{request.parent}/{kind.collection}/{_new_id(request, kind)}", getattr(request, kind.field)
    )
    return answered(call, made, about=made.name)


def _new_id(request: Any, kind: ResourceKind) -> str:
    field = f"{kind.field}_id"
    given: str = getattr(request, field, "")
    pattern = _WITH_CAPITALS if kind.capitals else _GIVEN_ID
    if given and not pattern.fullmatch(given):
        raise invalid_field(field, f"{given!r} does not match {pattern.pattern}")
    return given or str(random.randrange(10**18, 9 * 10**18))


def _get(call: ApiCall, _: ResourceKind) -> Message:
    return call.services.resources.get(call.request.name, call.rpc.response)


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
    "Get": _get,
    "List": _list,
    "Update": _update,
    "Delete": _delete,
}


def check_etag(kind: str, given: str, kept: str, code: StatusCode) -> None:
    """Raises ApiError with a code if a write was based on another version of a resource."""
    if given and given != kept:
        raise ApiError(code, f"Specified {kind} `etag`: `{given}` does not match server `etag`: `{kept}`")


def answered(call: ApiCall, result: Any, about: str) -> Message:
    """Returns a method's result, wrapped in an operation if the method answers with one.

    Args:
      call: the request.
      result: the method's result.
      about: the resource that the operation is about; see :meth:`Operations.done`.
    """
    if call.rpc.response is operations_pb2.Operation:
        return call.services.operations.done(result, about, metadata_of(call.rpc, call.services.clock.now()))
    return result
