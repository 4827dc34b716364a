"""Parses filters: the language of AIP-160, as far as Vertex AI has it.

In it, ``OR`` binds tighter than ``AND``, and a sequence of restrictions requires all of them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

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
    """Parses a filter that is not empty; raises ApiError, which says where the error is."""
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
