"""Rebuilds frozen values from JSON, by their type hints.

This is shorter than the configuration of a library would be: values keep their names, numbers keep their types, and
fields that a newer harness added are ignored.
"""

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Self


class JsonValue:
    """The base of frozen dataclasses that survive a trip through JSON."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for ``json.dumps``."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Rebuilds the value from the result of :meth:`to_json`, before or after a trip through JSON."""
        return cls(**decode_fields(cls, value))


def decode_fields(kind: type, value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a dataclass that a mapping has, decoded."""
    return {name: _decode(hint, value[name]) for name, hint in type_hints(kind).items() if name in value}


def _decode(hint: Any, value: Any) -> Any:
    parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
    match typing.get_origin(hint) or hint:
        case types.UnionType:
            return value if value is None or len(parts) > 1 else _decode(parts[0], value)
        case builtin if builtin is tuple:
            return tuple(_decode(parts[0], item) for item in value) if parts[1] is ... else tuple(value)
        case abstract if abstract is Mapping:
            return {_decode(parts[0], key): _decode(parts[1], item) for key, item in value.items()}
        case type() as kind if dataclasses.is_dataclass(kind):
            return kind(**decode_fields(kind, value))
        case type() as kind if issubclass(kind, (enum.Enum, int)):  # the keys of JSON objects are strings
            return kind(value)
    return value


@functools.cache
def type_hints(kind: type) -> dict[str, Any]:
    """Returns the types of a dataclass's fields."""
    return typing.get_type_hints(kind)
