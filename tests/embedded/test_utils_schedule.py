"""Learning rates, and the steps of listed checkpoints, follow their schedules."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given, settings
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


STEPS = st.lists(st.integers(0, 60), max_size=8, unique=True).map(sorted)


def next_step(
    steps: list[int] | None, *, host: int, inner: int, epoch_end: int = 100, period: int = 10, first: int = 0
):
    return utils.find_next_checkpoint_step(0, inner, False, host, steps, epoch_end, period, first)


def test_there_may_be_no_listed_steps_and_those_that_are_done_are_skipped() -> None:
    assert next_step(None, host=5, inner=5) == (5, False)
    assert utils.find_next_checkpoint_step(1, 9, False, 10, [11, 13, 17], 100, 10, 0) == (3, True)


@example([7, 13], 5, 5, 10, 0, 100)
@example([10, 13], 5, 5, 10, 0, 100)  # a step of the period
@example([3], 0, 5, 10, 3, 100)  # the step at which the job began
@example([18], 10, 9, 10, 0, 15)  # after the epoch
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
