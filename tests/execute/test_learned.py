"""A training whose updates are nothing is told from one that learns, by what its parameters are before and after."""

from __future__ import annotations

import numpy as np
import pytest
import t5x_in_use

t5x_in_use.use()

from t5x_harness.execute.train import nothing_learnt, sampled  # noqa: E402

RATES = [0.001] * 4
BEFORE = {"kernel": np.linspace(-1, 1, 10_000).reshape(100, 100), "scale": np.ones(3), "bias": np.zeros(3)}


def test_parameters_that_stay_are_named_with_the_rates() -> None:
    assert nothing_learnt(sampled(BEFORE), BEFORE, RATES) == (
        "training changed nothing: at learning rates up to 0.001, no parameter changed by more than 0 of its size"
    )
    nearly = {**BEFORE, "kernel": BEFORE["kernel"] * (1 + 3e-8)}
    assert nothing_learnt(sampled(BEFORE), nearly, RATES) is not None


@pytest.mark.parametrize(("name", "value"), [("kernel", 1.001), ("scale", np.nan), ("bias", None)])
def test_one_array_that_changes_is_enough(name: str, value: float | None) -> None:
    after = {**BEFORE, name: BEFORE[name] + 1e-9 if value is None else BEFORE[name] * value}
    assert nothing_learnt(sampled(BEFORE), after, RATES) is None


def test_rates_that_are_next_to_nothing_explain_it() -> None:
    """As in the first steps of a long warm-up; a schedule that stays there is the plan's to tell."""
    assert nothing_learnt(sampled(BEFORE), BEFORE, [0.0, 1e-7, 2e-7]) is None
    assert nothing_learnt(sampled(BEFORE), BEFORE, []) is None


def test_arrays_that_other_hosts_hold_are_not_judged() -> None:
    class Elsewhere:
        is_fully_addressable = False

    assert sampled({"kernel": Elsewhere()}) == []
    assert nothing_learnt([], BEFORE, RATES) is None


def test_a_copy_is_compared() -> None:
    params = {"kernel": np.ones(3, np.float32)}
    before = sampled(params)
    params["kernel"] += 1
    assert nothing_learnt(before, params, RATES) is None
