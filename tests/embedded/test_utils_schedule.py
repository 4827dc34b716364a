"""Learning rate schedules have the values that their factors promise."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from t5x import utils


def rate(step: int, factors: str, **kwargs: float) -> float:
    return float(utils.create_learning_rate_scheduler(factors, **kwargs)(step))


@pytest.mark.parametrize(
    ("factors", "settings_", "step", "expected"),
    [
        ("constant", {"base_learning_rate": 0.25}, 7, 0.25),
        ("constant * linear_warmup", {"base_learning_rate": 2.0, "warmup_steps": 8}, 2, 0.5),
        ("constant * linear_warmup", {"base_learning_rate": 2.0, "warmup_steps": 8}, 80, 2.0),
        ("constant*rsqrt_decay", {"base_learning_rate": 1.0, "warmup_steps": 100}, 3, 0.1),
        ("constant * rsqrt_decay", {"base_learning_rate": 1.0, "warmup_steps": 100}, 400, 0.05),
        ("constant * rsqrt_normalized_decay", {"base_learning_rate": 3.0, "warmup_steps": 16}, 5, 3.0),
        ("constant * rsqrt_normalized_decay", {"base_learning_rate": 3.0, "warmup_steps": 16}, 64, 1.5),
        ("constant * decay_every", {"base_learning_rate": 1.0, "decay_factor": 0.5, "steps_per_decay": 10}, 9, 1.0),
        ("constant * decay_every", {"base_learning_rate": 1.0, "decay_factor": 0.5, "steps_per_decay": 10}, 35, 0.125),
        ("linear_decay", {"base_learning_rate": 2.0, "warmup_steps": 10, "decay_factor": 0.1}, 5, 1.0),
        ("linear_decay", {"base_learning_rate": 2.0, "warmup_steps": 10, "decay_factor": 0.1}, 14, 1.2),
        ("constant * cosine_decay", {"base_learning_rate": 1.0, "warmup_steps": 0, "steps_per_cycle": 100}, 50, 0.5),
        (
            "constant * cosine_decay",
            {"base_learning_rate": 1.0, "warmup_steps": 0, "steps_per_cycle": 100},
            125,
            0.853553,
        ),
        ("constant * cosine_decay", {"base_learning_rate": 1.0, "warmup_steps": 30, "steps_per_cycle": 100}, 10, 1.0),
        ("constant", {"base_learning_rate": 1.0, "min_learning_rate": 1.5}, 0, 1.5),
        ("linear_decay", {"base_learning_rate": 1.0, "warmup_steps": 1, "decay_factor": 1.0}, 99, 1e-8),
    ],
)
def test_rate_is_the_product_of_its_factors(
    factors: str, settings_: dict[str, float], step: int, expected: float
) -> None:
    assert rate(step, factors, **settings_) == pytest.approx(expected, rel=1e-5)


def test_default_is_warmup_then_inverse_root() -> None:
    schedule = utils.create_learning_rate_scheduler()
    assert float(schedule(500)) == pytest.approx(0.5 * 0.5 / math.sqrt(1000), rel=1e-5)
    assert float(schedule(4000)) == pytest.approx(0.5 / math.sqrt(4000), rel=1e-5)


def test_step_offset_moves_the_schedule() -> None:
    with_offset = utils.create_learning_rate_scheduler("linear_warmup", warmup_steps=10, step_offset=100)
    plain = utils.create_learning_rate_scheduler("linear_warmup", warmup_steps=10)
    assert [float(with_offset(step)) for step in (3, 100, 104, 150)] == [float(plain(step)) for step in (0, 0, 4, 50)]


def test_rate_is_a_float32_scalar_under_jit_too() -> None:
    schedule = utils.create_learning_rate_scheduler("constant * cosine_decay", steps_per_cycle=10, warmup_steps=2)
    compiled = jax.jit(schedule)(jnp.asarray(5, jnp.int32))
    assert (compiled.shape, compiled.dtype) == ((), jnp.float32)
    assert float(compiled) == pytest.approx(float(schedule(5)), rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-6, 10.0), st.integers(1, 10**5))
def test_rate_never_falls_below_its_minimum_nor_rises_above_its_base(step: int, base: float, warmup: int) -> None:
    value = rate(step, "constant * linear_warmup * rsqrt_decay", base_learning_rate=base, warmup_steps=warmup)
    assert 1e-8 * (1 - 1e-6) <= value <= max(base, 1e-8) * (1 + 1e-6)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_unknown_factor_is_named_at_once_with_the_close_one() -> None:
    with pytest.raises(ValueError, match="Unknown factor") as error:
        utils.create_learning_rate_scheduler("constant * rsqr_decay")
    assert str(error.value) == (
        "Unknown factor 'rsqr_decay' in the learning rate schedule 'constant * rsqr_decay'; did you mean "
        "'rsqrt_decay'? Known factors: constant, linear_warmup, linear_decay, rsqrt_decay, rsqrt_normalized_decay, "
        "decay_every, cosine_decay."
    )
