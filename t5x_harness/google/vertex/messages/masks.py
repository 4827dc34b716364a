"""Update masks: which fields of a request replace those of a resource."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.kinds import snake_case
from t5x_harness.google.vertex.messages.paths import is_repeated
from t5x_harness.google.vertex.wire.errors import ApiError, Violation

__all__ = ["apply_mask", "check_paths"]

_OF_THE_SERVICE = frozenset(("name", "create_time", "update_time", "etag"))
_STRUCT = "google.protobuf.Struct"


def apply_mask(kept: Message, given: Message, paths: Sequence[str]) -> None:
    """Changes a resource as a request has it.

    A path may end in a message's field (``encryption_spec.kms_key_name``), or in a key of a map or of a Struct
    (``labels.team``, ``metadata.accuracy``), which is removed where the request has none. A Struct that is named as a
    whole is merged key by key; a map is replaced. What only the service sets stays.

    Args:
      kept: the resource.
      given: of the request.
      paths: of the mask; none stand for all fields that are set, ``*`` for all.

    Raises:
      ApiError: INVALID_ARGUMENT: a path names no field.
    """
    if list(paths) == ["*"]:
        paths = [field.name for field in kept.DESCRIPTOR.fields]
    elif not paths:
        paths = [field.name for field, _ in given.ListFields()]
    else:
        check_paths(kept.DESCRIPTOR, paths, "update_mask")
    for path in paths:
        first, *rest = path.split(".")
        if snake_case(first) not in _OF_THE_SERVICE:
            _replace(kept, given, snake_case(first), rest)


def check_paths(descriptor: Any, paths: Iterable[str], field: str) -> None:
    """Refuses a mask that names what is not there.

    Args:
      descriptor: of the message.
      paths: of the mask.
      field: of the request that the mask is.

    Raises:
      ApiError: INVALID_ARGUMENT, with all such paths.
    """
    violations = [
        Violation(field, f"`{path}` is no field of {descriptor.name}")
        for path in paths
        if not _exists(descriptor, path)
    ]
    if violations:
        raise ApiError.of_violations(violations)


def _exists(descriptor: Any, path: str) -> bool:
    first, *rest = path.split(".")
    field = descriptor.fields_by_name.get(snake_case(first))
    if field is None:
        return False
    if not rest:
        return True
    if field.message_type is None:
        return False
    if field.message_type.full_name == _STRUCT:
        return all(rest)
    if field.message_type.GetOptions().map_entry:
        return len(rest) == 1 and bool(rest[0])
    return not is_repeated(field) and _exists(field.message_type, ".".join(rest))


def _replace(kept: Any, given: Any, name: str, rest: list[str]) -> None:
    field = kept.DESCRIPTOR.fields_by_name[name]
    if field.message_type is None:
        kept.ClearField(name)
        if is_repeated(field):
            getattr(kept, name).extend(getattr(given, name))
        elif not field.has_presence or given.HasField(name):
            setattr(kept, name, getattr(given, name))
    elif field.message_type.full_name == _STRUCT:
        _merge_struct(getattr(kept, name), getattr(given, name), rest)
    elif field.message_type.GetOptions().map_entry and rest:
        _replace_key(getattr(kept, name), getattr(given, name), rest[0], field.message_type)
    elif rest:
        _replace(getattr(kept, name), getattr(given, name), snake_case(rest[0]), rest[1:])
    else:
        kept.ClearField(name)
        if is_repeated(field):
            getattr(kept, name).MergeFrom(getattr(given, name))
        elif given.HasField(name):
            getattr(kept, name).CopyFrom(getattr(given, name))


def _replace_key(kept: Any, given: Any, key: str, entry: Any) -> None:
    kept.pop(key, None)
    if key in given:
        if entry.fields_by_name["value"].message_type is None:
            kept[key] = given[key]
        else:
            kept[key].CopyFrom(given[key])


def _merge_struct(kept: struct_pb2.Struct, given: struct_pb2.Struct, path: list[str]) -> None:
    if not path:
        for key, value in given.fields.items():
            kept.fields[key].CopyFrom(value)
        return
    first, *rest = path
    if not rest:
        kept.fields.pop(first, None)
        if first in given.fields:
            kept.fields[first].CopyFrom(given.fields[first])
    elif first in given.fields:
        _merge_struct(kept.fields[first].struct_value, given.fields[first].struct_value, rest)
