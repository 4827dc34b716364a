"""The order of lists: ``create_time desc, display_name``."""

from __future__ import annotations

from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from t5x_harness.google.vertex.messages.kinds import snake_case
from t5x_harness.google.vertex.messages.paths import is_repeated
from t5x_harness.google.vertex.wire.errors import ApiError, Violation

__all__ = ["in_order"]

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
        path, reverse = _part(part, order_by)
        if ordered:
            _check(ordered[0].DESCRIPTOR, path, order_by)
        # The sort is stable, so the last fields come first; turned round, equal ones keep their order, too.
        ordered.sort(key=lambda resource: _key(resource, path), reverse=reverse)
    return ordered


def _created(resource: Any) -> tuple[int, str]:
    time = getattr(resource, "create_time", None)
    return (time.ToNanoseconds() if time else 0), getattr(resource, "name", "")


def _part(part: str, order_by: str) -> tuple[list[str], bool]:
    path, _, direction = part.strip().partition(" ")
    if not path or direction.strip().lower() not in _DIRECTIONS:
        raise _invalid(order_by, f"{part.strip()!r} is no field, or field and desc")
    return path.split("."), _DIRECTIONS[direction.strip().lower()]


def _check(descriptor: Any, path: list[str], order_by: str) -> None:
    first, *rest = path
    field = descriptor.fields_by_name.get(snake_case(first)) if descriptor is not None else None
    if field is None:
        raise _invalid(order_by, f"there is no field {'.'.join(path)!r}")
    kind = field.message_type
    if rest and (kind is None or not kind.full_name.startswith("google.protobuf.Struct")) and not is_repeated(field):
        return _check(kind, rest, order_by)
    if not rest and (is_repeated(field) or (kind is not None and not _has_order(kind.full_name))):
        raise _invalid(order_by, f"{first} has no order")
    return None


def _has_order(full_name: str) -> bool:
    return full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration")


def _key(resource: Any, path: list[str]) -> tuple[bool, Any]:
    """What a resource sorts by; one without a value comes before all that have one."""
    value = resource
    for step in path:
        if hasattr(value, "fields"):  # a Struct
            value = value.fields.get(step)
        elif hasattr(value, "WhichOneof") and value.DESCRIPTOR.name == "Value":
            value = getattr(value, step, None)
        elif hasattr(value, "DESCRIPTOR"):
            value = getattr(value, snake_case(step))
        else:
            value = value.get(step)
        if value is None:
            return False, ""
    if isinstance(value, timestamp_pb2.Timestamp | duration_pb2.Duration):
        return True, value.ToNanoseconds()
    if hasattr(value, "DESCRIPTOR"):
        return False, ""
    return True, value


def _invalid(order_by: str, what: str) -> ApiError:
    return ApiError.of_violations([Violation("order_by", f"{order_by!r}: {what}")])
