"""The steps at which a learning rate turns are found exactly, from a warm-up of a few steps to a million steps."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from t5x_harness.plan.steps import curve_of


def warm_up_then_decay(step: int) -> float:
    """Returns the rate as T5X computes it, in float32."""
    return float(np.float32(min(1.0, step / 1000)) / np.sqrt(np.float32(max(step, 1000))))


def flat_then_decay(step: int) -> float:
    return float(1 / np.sqrt(np.float32(max(step, 10_000))))


@pytest.mark.parametrize(
    ("rate", "first", "last", "turns"),
    [
        pytest.param(lambda _: 0.001, 1_000_000, 1_019_999, [], id="constant"),
        pytest.param(warm_up_then_decay, 0, 999_999, [1000], id="warm-up-then-decay"),
        pytest.param(flat_then_decay, 0, 99_999, [10_000], id="flat-then-decay"),
        pytest.param(flat_then_decay, 1_000_000, 1_019_999, [], id="decay-goes-on"),
        pytest.param(lambda s: min(1.0, s / 1000), 0, 19_999, [1000], id="warm-up-then-flat"),
        pytest.param(lambda s: min(s / 37, 1) * max(0.0, 1 - s / 5000), 0, 9999, [37, 5000], id="to-nothing"),
        pytest.param(lambda s: float(s >= 777), 0, 999_999, [776, 777], id="jump"),
        pytest.param(
            lambda s: 0.5 * (1 + math.cos(math.pi * (s / 1000 % 1))), 0, 2999, [999, 1000, 1999, 2000], id="cycles"
        ),
        pytest.param(lambda s: 1.0 - s, 5, 6, [], id="two-steps"),
        pytest.param(lambda _: 0.5, 7, 7, [], id="one-step"),
    ],
)
def test_turns(rate: Callable[[int], float], first: int, last: int, turns: list[int]) -> None:
    curve = curve_of(rate, first, last)
    assert [step for step, _ in curve.points] == sorted({first, *turns, last})
    assert [value for _, value in curve.points] == [rate(step) for step, _ in curve.points]


def test_a_rate_that_is_not_finite_is_found_and_not_flat() -> None:
    curve = curve_of(lambda s: math.nan if s == 0 else 0.5, 0, 999)
    assert curve.not_finite[0] == 0
    assert math.isnan(curve.not_finite[1])
    assert not curve.is_flat
    assert curve.points[1:] == ((1, 0.5), (999, 0.5))
    assert curve_of(lambda s: 0.5 if s < 500 else math.inf, 0, 999).not_finite == (500, math.inf)


def test_few_steps_are_looked_at() -> None:
    looked: list[int] = []
    curve_of(lambda step: looked.append(step) or warm_up_then_decay(step), 0, 10_000_000)
    assert len(looked) == len(set(looked)) < 3000
