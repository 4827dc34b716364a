"""Paths to fields of messages, as filters, orders and masks have them, such as ``labels.team``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Self

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor

ABSENT: Any = object()
"""In the place of a value that a message does not have."""

_OPEN = ("google.protobuf.Struct", "google.protobuf.Value")
_KINDS = ("number_value", "string_value", "bool_value")


class NoField(LookupError):
    """A message has no such field."""


class SeveralValues(NoField):
    """A path goes on behind a list; the text is the list's field."""


@dataclasses.dataclass(frozen=True)
class FieldPath:
    """A path that leads somewhere.

    Attributes:
      fields: the descriptors of the fields that it goes through.
      keys: what follows them inside of a map, of a Struct or of a Value.
    """

    fields: tuple[Any, ...]
    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, descriptor: Any, path: Sequence[str]) -> Self:
        """Looks a path up.

        Args:
          path: names of fields, in snake or in camel case, then keys.

        Raises:
          NoField: there is no such field.
        """
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
        """The descriptor of what the path ends in."""
        last = self.fields[-1]
        return last.message_type.fields_by_name["value"] if self.keys and is_map(last) else last

    def owner(self, message: Any) -> Any:
        """Returns the message that has the last of the fields."""
        for field in self.fields[:-1]:
            message = getattr(message, field.name)
        return message

    def value(self, message: Any) -> Any:
        """Returns what the path leads to in a message; :data:`ABSENT` for nothing."""
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
    """Returns whether a field is a Struct: keys with values of any kind."""
    return field.message_type is not None and field.message_type.full_name == _OPEN[0]


def is_repeated(field: Any) -> bool:
    """Returns whether a field has many values, as lists and maps have.

    Args:
      field: its ``FieldDescriptor``. From protobuf 7 on it has no ``label`` any more; before 6.31, and so where the
        SDK's extra ``autologging`` asks for protobuf 5, it has no ``is_repeated`` yet.
    """
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def snake_case(name: str) -> str:
    """Returns ``custom_job`` of ``CustomJob`` or ``customJob``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
