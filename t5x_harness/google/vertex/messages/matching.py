"""Whether a resource is what a filter asks for."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2

from t5x_harness.google.vertex.messages.filters import And, Expression, Function, Not, Or, Restriction
from t5x_harness.google.vertex.messages.kinds import snake_case
from t5x_harness.google.vertex.messages.paths import is_repeated
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code

__all__ = ["Matcher"]

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_VALUES = {"number_value": 1, "string_value": 1, "bool_value": 1}
_ABSENT = object()


class Matcher:
    """A filter, ready for resources.

    Args:
      expression: the filter.
      services: for its functions.
    """

    def __init__(self, expression: Expression, services: Services) -> None:
        self._expression = expression
        self._services = services

    def __call__(self, resource: Any) -> bool:
        """Whether it holds.

        Args:
          resource: a protobuf message.

        Raises:
          ApiError: INVALID_ARGUMENT: it names a field, or a function, that there is not, or compares a field with what
            it cannot be.
        """
        return self._holds(self._expression, resource)

    def _holds(self, expression: Expression, resource: Any) -> bool:
        match expression:
            case And(operands):
                return all([self._holds(operand, resource) for operand in operands])  # all are looked at for errors
            case Or(operands):
                return any([self._holds(operand, resource) for operand in operands])
            case Not(operand):
                return not self._holds(operand, resource)
            case Function(name, arguments):
                function = self._services.filters.get(name)
                if function is None:
                    raise _invalid(f"there is no function {name}")
                return function(self._services, resource, arguments)
            case Restriction(path, compared, value):
                if derived := self._services.filters.get(f"{resource.DESCRIPTOR.name}.{path[0]}"):
                    return derived(self._services, resource, (compared, value))
                return _restricts(expression, resource)


def _restricts(restriction: Restriction, resource: Any) -> bool:
    value, field = _find(resource, list(restriction.path), ".".join(restriction.path))
    if restriction.operator == ":":
        return _has(value, field, restriction.value)
    return _compares(value, field, restriction)


def _find(value: Any, path: list[str], whole: str) -> tuple[Any, Any]:
    """What a path leads to, and the descriptor of the last field on it; absent values are :data:`_ABSENT`."""
    field = None
    while path:
        first, *path = path
        if isinstance(value, struct_pb2.Value):
            value, path = _inside_value(value, first, path)
        elif isinstance(value, struct_pb2.Struct):
            value = value.fields.get(first, _ABSENT)
        elif field is not None and field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = value.get(first, _ABSENT)
            field = field.message_type.fields_by_name["value"]
        elif field is not None and is_repeated(field):
            raise _invalid(f"{whole}: {field.name} has several values; it can be asked for with `:` only")
        else:
            field = value.DESCRIPTOR.fields_by_name.get(snake_case(first)) if hasattr(value, "DESCRIPTOR") else None
            if field is None:
                raise _invalid(f"there is no field {whole}")
            present = not field.has_presence or value.HasField(field.name)
            value = getattr(value, field.name) if present or path else _ABSENT
        if value is _ABSENT:
            return _ABSENT, field
    return value, field


def _inside_value(value: Any, first: str, path: list[str]) -> tuple[Any, list[str]]:
    """A step into a value of a Struct: its type by name, a key of a struct, or nothing."""
    if first in _VALUES:
        return (value if value.WhichOneof("kind") == first else _ABSENT), path
    if first == "struct_value" and path:
        first, path = path[0], path[1:]
    return value.struct_value.fields.get(first, _ABSENT), path


def _has(value: Any, field: Any, wanted: str) -> bool:
    """``field:wanted``: an element of a list, a key of a map, or a text that matches; ``*`` is for anything."""
    if value is _ABSENT:
        return False
    if isinstance(value, struct_pb2.Struct):
        return bool(value.fields) if wanted == "*" else wanted in value.fields
    if field is not None and is_repeated(field) and not isinstance(value, str | bytes):
        elements = [str(element) for element in value]
        return bool(elements) if wanted == "*" else any(_text_matches(element, wanted) for element in elements)
    if wanted == "*":
        return bool(value)
    return _compares(value, field, Restriction((), "=", wanted))


def _compares(value: Any, field: Any, restriction: Restriction) -> bool:
    if value is _ABSENT:
        return restriction.operator == "!="
    if field is not None and is_repeated(field) and not field.message_type and not isinstance(value, str):
        raise _invalid(f"{field.name} has several values; it can be asked for with `:` only")
    value, wanted = _comparable(value, field, restriction.value)
    if isinstance(value, str) and "*" in wanted and restriction.operator in ("=", "!="):
        return _text_matches(value, wanted) == (restriction.operator == "=")
    return _COMPARE[restriction.operator](value, wanted)


def _comparable(value: Any, field: Any, wanted: str) -> tuple[Any, Any]:
    """A field's value, and a filter's text as the same type.

    Raises:
      ApiError: INVALID_ARGUMENT: the text is none of that type.
    """
    if isinstance(value, struct_pb2.Value):
        kind = value.WhichOneof("kind")
        value = getattr(value, kind) if kind in _VALUES else ""
    elif field is not None and field.enum_type is not None:
        return _enum(value, field.enum_type, wanted)
    try:
        if isinstance(value, bool):
            return value, {"true": True, "false": False}[wanted.lower()]
        if isinstance(value, int | float):
            return value, float(wanted)
        if isinstance(value, timestamp_pb2.Timestamp | duration_pb2.Duration):
            other = type(value)()
            other.FromJsonString(wanted)
            return value.ToNanoseconds(), other.ToNanoseconds()
    except (KeyError, ValueError):
        what = field.name if field is not None else "the value"
        raise _invalid(f"{what} cannot be compared with {wanted!r}") from None
    if not isinstance(value, str):
        raise _invalid(f"{field.name} is no value to compare with")
    return value, wanted


def _enum(value: int, kind: Any, wanted: str) -> tuple[Any, Any]:
    if wanted.isdigit():
        return value, int(wanted)
    if wanted not in kind.values_by_name and "*" not in wanted:
        raise _invalid(f"{wanted!r} is none of {', '.join(kind.values_by_name)}")
    found = kind.values_by_number.get(value)
    return (found.name if found else str(value)), wanted


def _text_matches(text: str, wanted: str) -> bool:
    return re.fullmatch(re.escape(wanted).replace(r"\*", ".*"), text, re.DOTALL) is not None


def _invalid(what: str) -> ApiError:
    return ApiError(Code.INVALID_ARGUMENT, f"Invalid filter: {what}")
