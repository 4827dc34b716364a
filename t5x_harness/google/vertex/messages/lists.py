"""Lists: filtered, in an order, page by page, and with the fields that were asked for."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
import json
from typing import Any, Self

from google.protobuf import duration_pb2, field_mask_pb2, timestamp_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.kinds import ResourceKind
from t5x_harness.google.vertex.messages.masks import check_paths
from t5x_harness.google.vertex.messages.matching import matcher
from t5x_harness.google.vertex.messages.paths import (
    ABSENT,
    FieldPath,
    NoField,
    SeveralValues,
    is_repeated,
    snake_case,
)
from t5x_harness.google.vertex.services import ApiCall
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, invalid_field


@dataclasses.dataclass(frozen=True)
class PageToken:
    """A place in a list.

    Attributes:
      last: the name of the last one of the page before.
      offset: how many were on earlier pages; where to go on when that one is gone.
    """

    last: str
    offset: int

    def encode(self, request: Message) -> str:
        """Returns the text that clients send back."""
        content = json.dumps([self.last, self.offset]).encode()
        return base64.urlsafe_b64encode(_seal(request, content) + content).decode()

    @classmethod
    def decode(cls, text: str, request: Message) -> Self:
        """Reads a token; raises ApiError if it is none, or was given to a request for something else."""
        try:
            data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            data = b""
        seal, content = data[:_SEAL], data[_SEAL:]
        if not content or seal != _seal(request, content):
            raise ApiError(
                StatusCode.INVALID_ARGUMENT,
                "Invalid page_token: it is none that a page of this list was answered with; parent, filter and "
                "order_by have to be those of the first page",
            )
        last, offset = json.loads(content)
        return cls(last, offset)


_SEAL = 12


def _seal(request: Any, content: bytes) -> bytes:
    """Returns what ties a token to everything in a request but the page that is asked for."""
    bound = type(request)()
    bound.CopyFrom(request)
    for field in ("page_token", "page_size"):
        bound.ClearField(field)
    identity = type(request).__name__.encode() + b"\0" + bound.SerializeToString(deterministic=True)
    return hashlib.sha256(identity + b"\0" + content).digest()[:_SEAL]


def page_bounds(names: list[str], request: Any, size: int) -> tuple[int, int]:
    """Returns the first of a page and the one behind its last, as indices.

    Args:
      names: of all that are listed, in their order.
      request: with ``page_token``.

    Raises:
      ApiError: INVALID_ARGUMENT: a token that is none.
    """
    first = 0
    if request.page_token:
        token = PageToken.decode(request.page_token, request)
        first = names.index(token.last) + 1 if token.last in names else token.offset
    return first, first + size


def page_size(request: Any, default: int, largest: int) -> int:
    """Returns how many a page has.

    Args:
      request: with ``page_size``; 0 for no wish.

    Raises:
      ApiError: INVALID_ARGUMENT: a negative number.
    """
    size: int = request.page_size
    if size < 0:
        raise invalid_field("page_size", f"{size} is negative")
    return min(size or default, largest)


_ORDERED = ("google.protobuf.Timestamp", "google.protobuf.Duration")
_DIRECTIONS = {"": False, "asc": False, "desc": True}


def in_order(resources: list[Any], order_by: str, *, newest_first: bool) -> list[Any]:
    """Sorts resources.

    Args:
      resources: protobuf messages, mostly with ``name`` and ``create_time``.
      order_by: fields, separated by commas, each with ``desc`` behind it to turn it round; empty for the time of
        creation. What it leaves equal is in the order of creation.
      newest_first: the direction where no order is asked for.

    Raises:
      ApiError: INVALID_ARGUMENT: there is no such field, or it has no order.
    """
    ordered = sorted(resources, key=_created)
    if not order_by.strip():
        return ordered[::-1] if newest_first else ordered
    for part in reversed(order_by.split(",")):
        names, reverse = _part(part, order_by)
        if ordered:
            path = _path(ordered[0].DESCRIPTOR, names, order_by)
            # The sort is stable, so the last fields come first; turned round, equal ones keep their order, too.
            ordered.sort(key=functools.partial(_key, path), reverse=reverse)
    return ordered


def _created(resource: Any) -> tuple[int, str]:
    time = getattr(resource, "create_time", None)
    return (time.ToNanoseconds() if time else 0), getattr(resource, "name", "")


def _part(part: str, order_by: str) -> tuple[list[str], bool]:
    path, _, direction = part.strip().partition(" ")
    if not path or direction.strip().lower() not in _DIRECTIONS:
        raise _invalid(order_by, f"{part.strip()!r} is not a field, or field and desc")
    return path.split("."), _DIRECTIONS[direction.strip().lower()]


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
    """Returns what a resource sorts by.

    One without a value comes before all that have one, and numbers come before texts.
    """
    value = path.value(resource)
    if isinstance(value, timestamp_pb2.Timestamp | duration_pb2.Duration):
        return 1, value.ToNanoseconds()
    if value is ABSENT or hasattr(value, "DESCRIPTOR"):
        return 0, ""
    return (2 if isinstance(value, str) else 1), value


def _invalid(order_by: str, what: str) -> ApiError:
    return invalid_field("order_by", f"{order_by!r}: {what}")


def list_page(call: ApiCall, kind: ResourceKind, resources: list[Any], field: str) -> Message:
    """Returns the response to a List method.

    Args:
      call: its request may have ``filter``, ``order_by``, ``page_size``, ``page_token`` and ``read_mask``.
      field: of the response that takes them.

    Raises:
      ApiError: INVALID_ARGUMENT: one of these cannot be read.
    """
    request = call.request
    response: Any = call.rpc.response()
    # What can be asked of no resource of the kind is refused where there are none, too.
    blank = getattr(call.rpc.response(), field).add()
    order_by = getattr(request, "order_by", "")
    in_order([blank], order_by, newest_first=False)
    matches = matcher(getattr(request, "filter", ""), call.services)
    matches(blank)
    resources = [resource for resource in resources if matches(resource)]
    resources = in_order(resources, order_by, newest_first=kind.newest_first)
    size = page_size(request, kind.page, kind.largest_page)
    first, end = page_bounds([resource.name for resource in resources], request, size)
    paths = request.read_mask.paths if "read_mask" in request.DESCRIPTOR.fields_by_name else ()
    getattr(response, field).extend(_masked(resources[first:end], blank, list(paths)))
    if end < len(resources):
        response.next_page_token = PageToken(resources[end - 1].name, end).encode(request)
    return response


def _masked(page: list[Any], blank: Any, paths: list[str]) -> list[Any]:
    """Returns the resources with the fields of a mask only, and with all if it is empty or ``*``."""
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
