"""Reading stops at its bounds, whatever the source does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from t5x_harness.resolve.reading import Reading, read_within


def test_a_short_source_is_read_to_its_end() -> None:
    assert read_within(lambda: "abc", keep=5, count=0, seconds=60) == Reading(("a", "b", "c"), 3, True, False)


def test_no_more_is_kept_and_counted_than_was_asked_for() -> None:
    reading = read_within(itertools.count, keep=2, count=5, seconds=60)
    assert reading == Reading((0, 1), 5, False, False)


def test_what_is_kept_is_counted_where_less_is_to_be_counted() -> None:
    assert read_within(itertools.count, keep=3, count=1, seconds=60).count == 3


def test_a_source_that_waits_is_left_with_what_came() -> None:
    never = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        yield 2
        never.wait()

    reading = read_within(items, keep=5, count=0, seconds=1)
    never.set()
    assert reading == Reading((1, 2), 2, False, True)


def test_a_source_that_is_never_made_is_left() -> None:
    never = threading.Event()

    def items() -> list[int]:
        never.wait()
        return []

    reading = read_within(items, keep=5, count=0, seconds=0.05)
    never.set()
    assert reading == Reading((), 0, False, True)


def test_what_the_source_raises_is_raised_here() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("column")

    with pytest.raises(KeyError, match="column"):
        read_within(items, keep=5, count=0, seconds=60)


def test_more_is_read_where_it_comes_soon() -> None:
    reading = read_within(itertools.count, keep=2, count=5, seconds=60, further=1000, spare=60)
    assert reading == Reading((0, 1), 1000, False, False)


def test_what_comes_late_after_enough_is_not_waited_for() -> None:
    never = threading.Event()

    def items() -> Iterator[int]:
        yield from range(5)
        never.wait()

    reading = read_within(items, keep=2, count=5, seconds=60, further=1000, spare=0.05)
    never.set()
    assert reading == Reading((0, 1), 5, False, False)


def test_an_error_behind_enough_is_raised_if_it_comes_soon() -> None:
    def items() -> Iterator[int]:
        yield from range(9)
        raise KeyError("column")

    with pytest.raises(KeyError, match="column"):
        read_within(items, keep=2, count=5, seconds=60, further=1000, spare=60)
