"""Paths to fields of messages in filters, orders and masks, such as ``labels.team``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Self

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor

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
        """Resolves a path.

        Args:
          descriptor: the descriptor of the message.
          path: names of fields, in snake or in camel case, then keys.

        Raises:
          NoField: a field does not exist.
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

    Args:
      field: the ``FieldDescriptor``. Since protobuf 7 it has no ``label``. Before 6.31 it had no ``is_repeated``, and
        the SDK's extra ``autologging`` requires protobuf 5.
    """
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def snake_case(name: str) -> str:
    """Returns ``custom_job`` for ``CustomJob`` or ``customJob``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
