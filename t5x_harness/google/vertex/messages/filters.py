"""Parses filters and matches resources against them: the language of AIP-160, as far as Vertex AI supports it.

In it, ``OR`` binds tighter than ``AND``, and a sequence of restrictions requires all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2

from t5x_harness.google.vertex.messages.paths import ABSENT, FieldPath, NoField, SeveralValues, is_repeated
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, invalid_argument

Operator = Literal["=", "!=", "<", "<=", ">", ">=", ":"]


@dataclasses.dataclass(frozen=True)
class Restriction:
    """A comparison of a field with a value.

    Attributes:
      path: the path to the field, such as ``("metadata", "loss", "number_value")``.
      operator: the comparison; ``:`` tests for an element, a key, or with ``*`` for anything.
      value: the value as text, which is converted to the field's type.
    """

    path: tuple[str, ...]
    operator: Operator
    value: str


@dataclasses.dataclass(frozen=True)
class Function:
    """A call of a function of the service, such as ``in_context("…")``."""

    name: str
    arguments: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Not:
    """The negation of an expression."""

    operand: Expression


@dataclasses.dataclass(frozen=True)
class And:
    """The conjunction of expressions."""

    operands: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True)
class Or:
    """The disjunction of expressions."""

    operands: tuple[Expression, ...]


Expression = Restriction | Function | Not | And | Or

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator><=|>=|!=|=|<|>|:)
    | (?P<mark>[(),.])
    | (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)
    | (?P<number>-?\d+\.\d+(?:[eE][+-]?\d+)?)
    | (?P<word>-(?=[\s(]|[A-Za-z_])|[^\s"'()<>=!:,.]+)
    )""",
    re.VERBOSE,
)
_DEEPEST = 50
_NEGATIONS = ("NOT", "-")
_BETWEEN = ("AND", "OR")


@dataclasses.dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def parse_filter(text: str) -> Expression:
    """Parses a filter that is not empty; raises ApiError with the position of the error."""
    parser = _Parser(text)
    expression = parser.expression(0)
    parser.expect("end")
    return expression


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._next = 0

    def _split(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        end = len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong(at + len(text[at:]) - len(text[at:].lstrip()), "it cannot be parsed")
            assert found.lastgroup
            tokens.append(_Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
            at = found.end()
        return [*tokens, _Token("end", "", len(text))]

    def expression(self, depth: int) -> Expression:
        if depth > _DEEPEST:
            raise self._wrong(self._token.at, f"more than {_DEEPEST} levels of parentheses")
        operands = [self._sequence(depth)]
        while self._skip("word", "AND"):
            operands.append(self._sequence(depth))
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _sequence(self, depth: int) -> Expression:
        operands = [self._factor(depth)]
        while self._token.kind in ("word", "string", "number", "time") or self._is("mark", "("):
            if self._token.kind == "word" and self._token.text in _BETWEEN:
                break
            operands.append(self._factor(depth))
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _factor(self, depth: int) -> Expression:
        operands = [self._term(depth)]
        while self._skip("word", "OR"):
            operands.append(self._term(depth))
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _term(self, depth: int) -> Expression:
        if any(self._skip("word", word) for word in _NEGATIONS):
            return Not(self._simple(depth))
        return self._simple(depth)

    def _simple(self, depth: int) -> Expression:
        if self._skip("mark", "("):
            inner = self.expression(depth + 1)
            self.expect("mark", ")")
            return inner
        path = [self._name()]
        if self._skip("mark", "("):
            return Function(path[0], self._arguments())
        while self._skip("mark", "."):
            path.append(self._name())
        if self._token.kind != "operator":
            raise self._wrong(self._token.at, "an operator (=, !=, <, <=, >, >= or :) has to come after a field")
        operator: Operator = self._take().text  # type: ignore[assignment]
        return Restriction(tuple(path), operator, self._value())

    def _name(self) -> str:
        token = self._token
        if token.kind == "word" and token.text in (*_BETWEEN, *_NEGATIONS):
            raise self._wrong(token.at, f"{token.text} is not expected here")
        if token.kind not in ("word", "string"):
            raise self._wrong(token.at, "a field is expected")
        return _unquoted(self._take())

    def _value(self) -> str:
        token = self._token
        if token.kind not in ("word", "string", "number", "time"):
            raise self._wrong(token.at, "a value is expected")
        value = _unquoted(self._take())
        if token.kind == "word":  # an unquoted value may have dots, like names of schemas
            while self._is("mark", ".") and self._token.at == self._end(self._next - 1):
                value += self._take().text
                if self._token.kind in ("word", "number") and self._token.at == self._end(self._next - 1):
                    value += self._take().text
        return value

    def _arguments(self) -> tuple[str, ...]:
        arguments: list[str] = []
        while not self._skip("mark", ")"):
            if arguments:
                self.expect("mark", ",")
            arguments.append(self._value())
        return tuple(arguments)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _end(self, index: int) -> int:
        token = self._tokens[index]
        return token.at + len(token.text)

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _is(self, kind: str, text: str) -> bool:
        return self._token.kind == kind and self._token.text == text

    def _skip(self, kind: str, text: str) -> bool:
        found = self._is(kind, text)
        self._next += found
        return found

    def expect(self, kind: str, text: str = "") -> None:
        """Skips a token; raises ApiError for any other."""
        if not self._skip(kind, text):
            raise self._wrong(self._token.at, f"{text or 'the end'} is expected")

    def _wrong(self, at: int, what: str) -> ApiError:
        where = f"at {self._text[at:][:40]!r}" if at < len(self._text.rstrip()) else "at its end"
        return invalid_argument(f"Invalid filter {self._text!r}: {what}, {where}")


def _unquoted(token: _Token) -> str:
    return re.sub(r"\\(.)", r"\1", token.text[1:-1]) if token.kind == "string" else token.text


COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matcher(text: str, services: Services) -> Callable[[Any], bool]:
    """Returns a function that checks whether a resource's message matches a filter. An empty filter matches all.

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
    return COMPARE[restriction.operator](value, wanted)


def _comparable(value: Any, field: Any, wanted: str) -> tuple[Any, Any]:
    """Returns a field's value, and a filter's text converted to its type; raises ApiError if it cannot be converted."""
    if field.enum_type is not None:
        known = field.enum_type
        if wanted.isdigit():
            return value, int(wanted)
        if wanted not in known.values_by_name and "*" not in wanted:
            raise _invalid(f"{wanted!r} is not one of {', '.join(known.values_by_name)}")
        found = known.values_by_number.get(value)
        return (found.name if found else str(value)), wanted
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


def _text_matches(text: str, wanted: str) -> bool:
    return re.fullmatch(re.escape(wanted).replace(r"\*", ".*"), text, re.DOTALL) is not None


def _invalid(what: str) -> ApiError:
    return invalid_argument(f"Invalid filter: {what}")
