"""Matches resources against filters."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2

from t5x_harness.google.vertex.messages.filters import And, Expression, Function, Not, Or, Restriction, parse_filter
from t5x_harness.google.vertex.messages.paths import ABSENT, FieldPath, NoField, SeveralValues, is_repeated
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, invalid_argument

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matcher(text: str, services: Services) -> Callable[[Any], bool]:
    """Returns a function that says whether a resource's message matches a filter; an empty filter matches everything.

    The function raises ApiError for a field or function that does not exist, or a value of another type.
    """
    if not text:
        return lambda _: True
    return functools.partial(_matches, services, parse_filter(text))


def _matches(services: Services, expression: Expression, resource: Any) -> bool:
    matches = functools.partial(_matches, services, resource=resource)
    match expression:
        case And(operands) | Or(operands):
            found = [matches(operand) for operand in operands]  # all of them, so that each is checked for errors
            return all(found) if isinstance(expression, And) else any(found)
        case Not(operand):
            return not matches(operand)
        case Function(name, arguments):
            function = services.filters.get(name)
            if function is None:
                raise _invalid(f"there is no function {name}")
            return function(services, resource, arguments)
        case Restriction(path, compared, value):
            if derived := services.filters.get(f"{resource.DESCRIPTOR.name}.{path[0]}"):
                return derived(services, resource, (compared, value))
            return _restricts(expression, resource)


def _restricts(restriction: Restriction, resource: Any) -> bool:
    try:
        path = FieldPath.of(resource.DESCRIPTOR, restriction.path)
    except SeveralValues as error:
        whole = ".".join(restriction.path)
        raise _invalid(f"{whole}: {error} has several values; it can be compared only with `:`") from None
    except NoField as error:
        raise _invalid(f"there is no field {error}") from None
    value, field = path.value(resource), path.field
    if restriction.operator == ":" and restriction.value == "*" and path.keys:
        return value is not ABSENT
    if restriction.operator == ":":
        return _has(value, field, restriction.value)
    return _compares(value, field, restriction)


def _has(value: Any, field: Any, wanted: str) -> bool:
    """Evaluates ``field:wanted``: an element of a list, a key of a map, or a matching text; ``*`` matches anything."""
    if value is ABSENT:
        return False
    if isinstance(value, struct_pb2.Struct):
        return bool(value.fields) if wanted == "*" else wanted in value.fields
    if is_repeated(field) and not isinstance(value, str | bytes):
        elements = [str(element) for element in value]
        return bool(elements) if wanted == "*" else any(_text_matches(element, wanted) for element in elements)
    if wanted == "*":
        return bool(value)
    return _compares(value, field, Restriction((), "=", wanted))


def _compares(value: Any, field: Any, restriction: Restriction) -> bool:
    if value is ABSENT:
        return restriction.operator == "!="
    if is_repeated(field) and not field.message_type and not isinstance(value, str):
        raise _invalid(f"{field.name} has several values; it can be compared only with `:`")
    value, wanted = _comparable(value, field, restriction.value)
    if isinstance(value, str) and "*" in wanted and restriction.operator in ("=", "!="):
        return _text_matches(value, wanted) == (restriction.operator == "=")
    return _COMPARE[restriction.operator](value, wanted)


def _comparable(value: Any, field: Any, wanted: str) -> tuple[Any, Any]:
    """Returns a field's value, and a filter's text converted to its type; raises ApiError if it cannot be converted."""
    if field.enum_type is not None:
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
        raise _invalid(f"{field.name} cannot be compared with {wanted!r}") from None
    if not isinstance(value, str):
        raise _invalid(f"{field.name} cannot be compared with a value")
    return value, wanted


def _enum(value: int, kind: Any, wanted: str) -> tuple[Any, Any]:
    if wanted.isdigit():
        return value, int(wanted)
    if wanted not in kind.values_by_name and "*" not in wanted:
        raise _invalid(f"{wanted!r} is not one of {', '.join(kind.values_by_name)}")
    found = kind.values_by_number.get(value)
    return (found.name if found else str(value)), wanted


def _text_matches(text: str, wanted: str) -> bool:
    return re.fullmatch(re.escape(wanted).replace(r"\*", ".*"), text, re.DOTALL) is not None


def _invalid(what: str) -> ApiError:
    return invalid_argument(f"Invalid filter: {what}")
