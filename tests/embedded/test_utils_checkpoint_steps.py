"""A stretch of steps ends on a listed checkpoint step that the period would miss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from t5x import utils

STEPS = st.lists(st.integers(0, 60), max_size=8, unique=True).map(sorted)


def next_step(
    steps: list[int] | None, *, host: int, inner: int, epoch_end: int = 100, period: int = 10, first: int = 0
):
    return utils.find_next_checkpoint_step(0, inner, False, host, steps, epoch_end, period, first)


def test_stretch_is_cut_at_the_listed_step() -> None:
    assert next_step([7, 13], host=5, inner=5) == (2, True)


def test_listed_step_of_the_period_does_not_cut() -> None:
    assert next_step([10, 13], host=5, inner=5) == (5, False)


def test_listed_steps_out_of_reach_do_not_cut() -> None:
    assert next_step([3], host=0, inner=5, first=3) == (5, False)  # where the job began
    assert next_step([18], host=10, inner=9, epoch_end=15) == (9, False)  # after the epoch
    assert next_step([30], host=10, inner=5) == (5, False)  # after the stretch


def test_without_listed_steps_nothing_changes() -> None:
    assert next_step([], host=5, inner=5) == (5, False)
    assert next_step(None, host=5, inner=5) == (5, False)


def test_index_skips_steps_that_are_done() -> None:
    assert utils.find_next_checkpoint_step(1, 9, False, 10, [11, 13, 17], 100, 10, 0) == (3, True)


@given(STEPS, st.integers(0, 50), st.integers(1, 20), st.integers(1, 15), st.integers(0, 30), st.integers(0, 60))
def test_cut_is_the_first_listed_step_that_counts(
    steps: list[int], host: int, inner: int, period: int, first: int, epoch_end: int
) -> None:
    counting = [
        step for step in steps if step <= host + inner and first < step <= epoch_end and (step - first) % period != 0
    ]
    expected = (counting[0] - host, True) if counting else (inner, False)
    assert next_step(steps, host=host, inner=inner, epoch_end=epoch_end, period=period, first=first) == expected


@given(STEPS, st.integers(0, 60), st.integers(0, 60))
def test_first_index_is_of_the_first_step_to_come(steps: list[int], host: int, first: int) -> None:
    index = utils.find_first_checkpoint_step(0, steps, first, host)
    to_come = [i for i, step in enumerate(steps) if step >= host and step != first]
    assert index == (to_come[0] if to_come else max(len(steps) - 1, 0))
