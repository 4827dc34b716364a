"""Filters are parsed by the rules of AIP-160."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_harness.google.vertex.messages.filters import And, Expression, Function, Not, Or, Restriction, parse_filter
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode


def _r(path: str, operator: Any, value: str) -> Restriction:
    return Restriction(tuple(path.split(".")), operator, value)


A, B, C = _r("a", "=", "1"), _r("b", "=", "2"), _r("c", "=", "3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", A),
        ("a='1'", A),
        ("a=1 AND b=2", And((A, B))),
        ("a=1 b=2", And((A, B))),
        ("a=1 OR b=2", Or((A, B))),
        ("a=1 AND b=2 OR c=3", And((A, Or((B, C))))),  # OR binds tighter
        ("(a=1 AND b=2) OR c=3", Or((And((A, B)), C))),
        ("NOT a=1", Not(A)),
        ("-a=1", Not(A)),
        ("a=1 AND NOT b=2", And((A, Not(B)))),
        ("state=JOB_STATE_RUNNING", _r("state", "=", "JOB_STATE_RUNNING")),
        ("labels.team:*", _r("labels.team", ":", "*")),
        ("labels.team=my-team", _r("labels.team", "=", "my-team")),
        ('create_time>"2021-05-18T00:00:00Z"', _r("create_time", ">", "2021-05-18T00:00:00Z")),
        ("create_time>=2021-05-18T00:00:00.5+02:00", _r("create_time", ">=", "2021-05-18T00:00:00.5+02:00")),
        ("metadata.loss.number_value <= -0.5", _r("metadata.loss.number_value", "<=", "-0.5")),
        ('metadata."eval:loss".number_value<1e-3', Restriction(("metadata", "eval:loss", "number_value"), "<", "1e-3")),
        ('schema_title="system.Run"', _r("schema_title", "=", "system.Run")),
        ("schema_title=system.Run AND a=1", And((_r("schema_title", "=", "system.Run"), A))),
        ("display_name != x*", _r("display_name", "!=", "x*")),
        (
            'in_context("projects/1/locations/l/metadataStores/default/contexts/c")',
            Function("in_context", ("projects/1/locations/l/metadataStores/default/contexts/c",)),
        ),
        ('f("a", b)', Function("f", ("a", "b"))),
        (
            'schema_title="system.Experiment" AND in_context("c") OR parent_contexts:"p"',
            And(
                (
                    _r("schema_title", "=", "system.Experiment"),
                    Or((Function("in_context", ("c",)), _r("parent_contexts", ":", "p"))),
                )
            ),
        ),
    ],
)
def test_what_a_filter_means(text: str, expected: Expression) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "Invalid filter 'a': an operator (=, !=, <, <=, >, >= or :) has to come after a field, at its end"),
        ("a=", "Invalid filter 'a=': a value is expected, at its end"),
        ("=1", "Invalid filter '=1': a field is expected, at '=1'"),
        ("a=1 AND", "Invalid filter 'a=1 AND': a field is expected, at its end"),
        ("AND a=1", "Invalid filter 'AND a=1': AND is not expected here, at 'AND a=1'"),
        ("a=1 OR OR b=2", "Invalid filter 'a=1 OR OR b=2': OR is not expected here, at 'OR b=2'"),
        ("(a=1", "Invalid filter '(a=1': ) is expected, at its end"),
        ("a=1)", "Invalid filter 'a=1)': the end is expected, at ')'"),
        ('a="1', "Invalid filter 'a=\"1': it cannot be parsed, at '\"1'"),
        (
            "a=1 & b=2",
            "Invalid filter 'a=1 & b=2': an operator (=, !=, <, <=, >, >= or :) has to come after a field, at 'b=2'",
        ),
        ("f(a", "Invalid filter 'f(a': , is expected, at its end"),
        ("   ", "Invalid filter '   ': a field is expected, at its end"),
    ],
)
def test_what_is_no_filter(text: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_filter(text)
    assert (caught.value.code, caught.value.message) == (StatusCode.INVALID_ARGUMENT, message)


def test_parentheses_without_end_are_refused() -> None:
    with pytest.raises(ApiError, match="more than 50 levels of parentheses"):
        parse_filter("(" * 100_000)


_FIELDS = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True), min_size=1, max_size=3).map(tuple)
_SIMPLE = st.one_of(
    st.builds(Restriction, _FIELDS, st.sampled_from("= != < <= > >= :".split()), st.text(max_size=6)),
    st.builds(
        Function, st.from_regex(r"[a-z_]{1,6}", fullmatch=True), st.lists(st.text(max_size=4), max_size=2).map(tuple)
    ),
)


def _joined(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(And, several), st.builds(Or, several))


def _written(expression: Expression) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    match expression:
        case Restriction(path, operator, value):
            return f"{'.'.join(path)} {operator} {quoted(value)}"
        case Function(name, arguments):
            return f"{name}({', '.join(map(quoted, arguments))})"
        case Not(operand):
            return f"NOT ({_written(operand)})"
        case And(operands):
            return " AND ".join(f"({_written(operand)})" for operand in operands)
        case Or(operands):
            return " OR ".join(f"({_written(operand)})" for operand in operands)


@given(st.recursive(_SIMPLE, _joined, max_leaves=8))
@settings(max_examples=200, deadline=None, database=None, derandomize=True)
def test_what_is_written_is_read_again(expression: Expression) -> None:
    assert parse_filter(_written(expression)) == expression


@given(st.text(alphabet="ab=<>:!()\"'\\., -*AND OR NOT 12é\n", max_size=30))
@settings(max_examples=300, deadline=None, database=None, derandomize=True)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    with contextlib.suppress(ApiError):
        parse_filter(text)
