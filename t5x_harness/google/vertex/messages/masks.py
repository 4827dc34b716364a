"""Update masks, which name the fields of a request that replace those of a resource."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.paths import FieldPath, NoField, is_map, is_repeated, is_struct
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation

_OF_THE_SERVICE = frozenset(("name", "create_time", "update_time", "etag"))


def apply_mask(kept: Message, given: Message, paths: Sequence[str]) -> None:
    """Updates a resource from a request.

    A path may end in a message's field (``encryption_spec.kms_key_name``), or in a key of a map or of a Struct
    (``labels.team``, ``metadata.accuracy``). A key that the request does not have is removed. A path to a whole Struct
    merges it key by key; a path to a whole map replaces it. Fields that only the service sets are not changed.

    Args:
      kept: the resource, which is changed.
      given: the resource in the request.
      paths: the paths of the mask. Without paths, all fields that are set are replaced; ``*`` stands for all fields.

    Raises:
      ApiError: INVALID_ARGUMENT: a path does not name a field.
    """
    if list(paths) == ["*"]:
        paths = [field.name for field in kept.DESCRIPTOR.fields]
    elif not paths:
        paths = [field.name for field, _ in given.ListFields()]
    else:
        check_paths(kept.DESCRIPTOR, paths, "update_mask")
    for path in paths:
        found = FieldPath.of(kept.DESCRIPTOR, path.split("."))
        if found.fields[0].name not in _OF_THE_SERVICE:
            _replace(found, found.owner(kept), found.owner(given))


def check_paths(descriptor: Any, paths: Iterable[str], field: str) -> None:
    """Raises ApiError, with all wrong paths, if a mask (``field`` of the request) names fields that do not exist."""
    violations = [
        FieldViolation(field, f"`{path}` is not a field of {descriptor.name}")
        for path in paths
        if not _exists(descriptor, path)
    ]
    if violations:
        raise ApiError.of_violations(violations)


def _exists(descriptor: Any, path: str) -> bool:
    try:
        found = FieldPath.of(descriptor, path.split("."))
    except NoField:
        return False
    last = found.fields[-1]
    return all(found.keys) and (not found.keys or is_struct(last) or (is_map(last) and len(found.keys) == 1))


def _replace(path: FieldPath, kept: Any, given: Any) -> None:
    """Replaces the last field of a path in one message with the field of another."""
    field = path.fields[-1]
    name = field.name
    if is_struct(field):
        _merge_struct(getattr(kept, name), getattr(given, name), list(path.keys))
    elif path.keys:
        _replace_key(getattr(kept, name), getattr(given, name), path.keys[0], field.message_type)
    else:
        kept.ClearField(name)
        if is_repeated(field):
            getattr(kept, name).MergeFrom(getattr(given, name))
        elif field.message_type is None and (not field.has_presence or given.HasField(name)):
            setattr(kept, name, getattr(given, name))
        elif field.message_type is not None and given.HasField(name):
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
