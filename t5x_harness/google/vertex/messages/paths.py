"""Paths to fields of messages, such as ``labels.team``, and the update masks that consist of them."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any, Self

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation

ABSENT: Any = object()
"""Stands for a value that a message does not have."""

_OPEN = ("google.protobuf.Struct", "google.protobuf.Value")
_KINDS = ("number_value", "string_value", "bool_value")


class NoField(LookupError):
    """A message does not have the field."""


class SeveralValues(NoField):
    """A path continues after a list; the text is the list's field."""


@dataclasses.dataclass(frozen=True)
class FieldPath:
    """A path to a field that exists.

    Attributes:
      fields: the descriptors of the fields on the path.
      keys: the rest of the path, inside a map, a Struct or a Value.
    """

    fields: tuple[Any, ...]
    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, descriptor: Any, path: Sequence[str]) -> Self:
        """Resolves a path in a message: names of fields, in snake or in camel case, then keys; raises NoField."""
        fields: list[Any] = []
        for number, name in enumerate(path, 1):
            field = descriptor.fields_by_name.get(snake_case(name)) if descriptor is not None else None
            if field is None:
                raise NoField(".".join(path))
            fields.append(field)
            descriptor = field.message_type
            if is_map(field) or (descriptor is not None and descriptor.full_name in _OPEN):
                return cls(tuple(fields), tuple(path[number:]))
            if is_repeated(field) and number < len(path):
                raise SeveralValues(field.name)
        return cls(tuple(fields))

    @property
    def field(self) -> Any:
        """The descriptor of the field that the path ends with."""
        last = self.fields[-1]
        return last.message_type.fields_by_name["value"] if self.keys and is_map(last) else last

    def owner(self, message: Any) -> Any:
        """Returns the message that has the last field."""
        for field in self.fields[:-1]:
            message = getattr(message, field.name)
        return message

    def value(self, message: Any) -> Any:
        """Returns the path's value in a message, or :data:`ABSENT`."""
        owner, last = self.owner(message), self.fields[-1]
        if last.has_presence and not owner.HasField(last.name) and not self.keys:
            return ABSENT
        value, keys = getattr(owner, last.name), list(self.keys)
        while keys and value is not ABSENT:
            key = keys.pop(0)
            if not isinstance(value, struct_pb2.Value):
                value = getattr(value, "fields", value).get(key, ABSENT)
            elif key in _KINDS:
                value = value if value.WhichOneof("kind") == key else ABSENT
            else:
                key = keys.pop(0) if key == "struct_value" and keys else key
                value = value.struct_value.fields.get(key, ABSENT)
        if isinstance(value, struct_pb2.Value):
            kind = value.WhichOneof("kind")
            return getattr(value, kind) if kind in _KINDS else ""
        return value


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_struct(field: Any) -> bool:
    """Returns whether a field is a Struct, which has keys with values of any type."""
    return field.message_type is not None and field.message_type.full_name == _OPEN[0]


def is_repeated(field: Any) -> bool:
    """Returns whether a field has several values: whether it is a list or a map.

    Since protobuf 7 a ``FieldDescriptor`` has no ``label``. Before 6.31 it had no ``is_repeated``, and the SDK's extra
    ``autologging`` requires protobuf 5.
    """
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def snake_case(name: str) -> str:
    """Returns ``custom_job`` for ``CustomJob`` or ``customJob``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_OF_THE_SERVICE = frozenset(("name", "create_time", "update_time", "etag"))


def apply_mask(kept: Message, given: Message, paths: Sequence[str]) -> None:
    """Updates a resource from a request.

    A path may end in a message's field (``encryption_spec.kms_key_name``), or in a key of a map or of a Struct
    (``labels.team``, ``metadata.accuracy``). A key that the request does not have is removed. A path to a whole Struct
    merges it key by key; a path to a whole map replaces it. Fields that only the service sets are not changed.

    Without paths, all fields that are set are replaced; ``*`` stands for all fields. A path that does not name a field
    raises ApiError (INVALID_ARGUMENT).
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
        [key], theirs, ours = path.keys, getattr(given, name), getattr(kept, name)
        ours.pop(key, None)
        if key in theirs and path.field.message_type is None:
            ours[key] = theirs[key]
        elif key in theirs:
            ours[key].CopyFrom(theirs[key])
    else:
        kept.ClearField(name)
        if is_repeated(field):
            getattr(kept, name).MergeFrom(getattr(given, name))
        elif field.message_type is None and (not field.has_presence or given.HasField(name)):
            setattr(kept, name, getattr(given, name))
        elif field.message_type is not None and given.HasField(name):
            getattr(kept, name).CopyFrom(getattr(given, name))


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
