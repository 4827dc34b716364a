"""Lists: filters, orders, pages and read masks."""

import base64
import binascii
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any

from google.protobuf import duration_pb2, field_mask_pb2, timestamp_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.filters import matcher
from t5x_harness.google.vertex.messages.names import ResourceKind
from t5x_harness.google.vertex.messages.paths import (
    ABSENT,
    FieldPath,
    NoField,
    SeveralValues,
    check_paths,
    is_repeated,
    snake_case,
)
from t5x_harness.google.vertex.services import ApiCall
from t5x_harness.google.vertex.wire.errors import ApiError, invalid_argument, invalid_field

_SEAL = 12
_ORDERED = ("google.protobuf.Timestamp", "google.protobuf.Duration")
_DIRECTIONS = {"": False, "asc": False, "desc": True}


def page_token(request: Message, last: str, offset: int) -> str:
    """Returns the token of a position in a list.

    Args:
      last: the name of the last item on the page before.
      offset: the number of items on earlier pages, which is used if that item is gone.
    """
    content = json.dumps([last, offset]).encode()
    return base64.urlsafe_b64encode(_seal(request, content) + content).decode()


def read_token(request: Any) -> tuple[str, int]:
    """Returns the last item and the offset of a request's ``page_token``.

    It raises ApiError (INVALID_ARGUMENT) for a text that is not a token, and for the token of a different request.
    """
    try:
        data = base64.b64decode(request.page_token.encode("ascii"), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        data = b""
    seal, content = data[:_SEAL], data[_SEAL:]
    if not content or seal != _seal(request, content):
        raise invalid_argument(
            "Invalid page_token: it is not from a page of this list; parent, filter and "
            "order_by have to be the same as for the first page",
        )
    last, offset = json.loads(content)
    return last, offset


def _seal(request: Any, content: bytes) -> bytes:
    """Returns the digest that binds a token's content to a request, whose page and page size may differ."""
    bound = type(request)()
    bound.CopyFrom(request)
    for field in ("page_token", "page_size"):
        bound.ClearField(field)
    identity = type(request).__name__.encode() + b"\0" + bound.SerializeToString(deterministic=True)
    return hashlib.sha256(identity + b"\0" + content).digest()[:_SEAL]


def page_of(
    items: list[Any], request: Any, size: int, name: Callable[[Any], str] = lambda item: item.name
) -> tuple[list[Any], str]:
    """Returns one page of a list, and the token of the next page, which is empty for the last one.

    Args:
      items: all items of the list, in their order.
      name: returns the text that identifies an item in the list.
    """
    first = 0
    if request.page_token:
        (last, offset), names = read_token(request), [name(item) for item in items]
        first = names.index(last) + 1 if last in names else offset
    end = first + size
    return items[first:end], page_token(request, name(items[end - 1]), end) if end < len(items) else ""


def page_size(request: Any, default: int, largest: int) -> int:
    """Returns the number of items on a page, for which 0 means the default; raises ApiError if it is negative."""
    size: int = request.page_size
    if size < 0:
        raise invalid_field("page_size", f"{size} is negative")
    return min(size or default, largest)


def in_order(resources: list[Any], order_by: str, *, newest_first: bool) -> list[Any]:
    """Sorts protobuf messages; raises ApiError (INVALID_ARGUMENT) for a field that does not exist, or has no order.

    Args:
      order_by: fields, separated by commas, each followed by ``desc`` to reverse it; empty for the time of creation.
        Ties are in the order of creation.
      newest_first: whether an empty ``order_by`` puts the newest first.
    """
    ordered = sorted(resources, key=_created)
    if not order_by.strip():
        return ordered[::-1] if newest_first else ordered
    for part in reversed(order_by.split(",")):
        name, _, direction = part.strip().partition(" ")
        reverse = _DIRECTIONS.get(direction.strip().lower())
        if not name or reverse is None:
            raise _invalid(order_by, f"{part.strip()!r} is not a field, or field and desc")
        if ordered:
            path = _path(ordered[0].DESCRIPTOR, name.split("."), order_by)
            # Sorting is stable, even in reverse, so the last field is sorted by first.
            ordered.sort(key=functools.partial(_key, path), reverse=reverse)
    return ordered


def _created(resource: Any) -> tuple[int, str]:
    time = getattr(resource, "create_time", None)
    return (time.ToNanoseconds() if time else 0), getattr(resource, "name", "")


def _path(descriptor: Any, names: list[str], order_by: str) -> FieldPath:
    try:
        path = FieldPath.of(descriptor, names)
    except SeveralValues as error:
        raise _invalid(order_by, f"{error} has no order") from None
    except NoField as error:
        raise _invalid(order_by, f"there is no field {str(error)!r}") from None
    last = path.fields[-1]
    kind = last.message_type
    if not path.keys and (is_repeated(last) or (kind is not None and kind.full_name not in _ORDERED)):
        raise _invalid(order_by, f"{last.name} has no order")
    return path


def _key(path: FieldPath, resource: Any) -> tuple[int, Any]:
    """Returns the sort key of a resource: a missing value comes first, then numbers, then texts."""
    value = path.value(resource)
    if isinstance(value, timestamp_pb2.Timestamp | duration_pb2.Duration):
        return 1, value.ToNanoseconds()
    if value is ABSENT or hasattr(value, "DESCRIPTOR"):
        return 0, ""
    return (2 if isinstance(value, str) else 1), value


def _invalid(order_by: str, what: str) -> ApiError:
    return invalid_field("order_by", f"{order_by!r}: {what}")


def list_page(call: ApiCall, kind: ResourceKind, resources: list[Any], field: str) -> Message:
    """Returns the response to a List method; raises ApiError (INVALID_ARGUMENT) if a field of the request is not valid.

    Args:
      call: a request, which may have ``filter``, ``order_by``, ``page_size``, ``page_token`` and ``read_mask``.
      resources: all resources of the list.
      field: the field of the response for the resources.
    """
    request = call.request
    response: Any = call.rpc.response()
    # An invalid filter or order is refused even if there are no resources.
    blank = getattr(call.rpc.response(), field).add()
    order_by = getattr(request, "order_by", "")
    in_order([blank], order_by, newest_first=False)
    matches = matcher(getattr(request, "filter", ""), call.services)
    matches(blank)
    resources = [resource for resource in resources if matches(resource)]
    resources = in_order(resources, order_by, newest_first=kind.newest_first)
    size = page_size(request, kind.page, kind.largest_page)
    page, response.next_page_token = page_of(resources, request, size)
    paths = request.read_mask.paths if "read_mask" in request.DESCRIPTOR.fields_by_name else ()
    getattr(response, field).extend(_masked(page, blank, list(paths)))
    return response


def _masked(page: list[Any], blank: Any, paths: list[str]) -> list[Any]:
    """Returns the resources with only the fields of a mask; an empty mask and ``*`` stand for all fields."""
    if not paths or paths == ["*"]:
        return page
    check_paths(blank.DESCRIPTOR, paths, "read_mask")
    mask = field_mask_pb2.FieldMask(paths=[".".join(map(snake_case, path.split("."))) for path in paths])
    masked = []
    for resource in page:
        shown = type(resource)()
        mask.MergeMessage(resource, shown)
        masked.append(shown)
    return masked
