"""When a training run evaluates, saves and writes metrics, as T5X was seen to do; plain arithmetic, no devices."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from t5x._errors import ConfigError
from t5x._train_schedule import Periods, Schedule, Stop


def walk(schedule: Schedule) -> dict[str, list[int]]:
    """The steps at which each thing happens, without the checkpoint at the first step."""
    happened: dict[str, list[int]] = {"metrics": [], "extra": [], "save": [], "evaluate": [], "collect": []}
    stop = Stop(schedule.first_step, saves=False)
    for epoch in schedule.epochs():
        while stop.step < epoch.end_step:
            stop = schedule.next_stop(stop, epoch)
            happened["metrics"].append(stop.step)
            if stop.saves:
                happened["extra"].append(stop.step)
        for what in ("save", "evaluate", "collect"):
            if schedule.is_due(getattr(schedule.periods, what), stop.step, epoch):
                happened[what].append(stop.step)
    return happened


def test_everything_that_is_on_happens_at_the_end_and_at_its_period() -> None:
    happened = walk(Schedule(0, 10, Periods(evaluate=4, save=2, collect=0), stats_period=3))
    assert happened == {
        "metrics": [2, 4, 6, 8, 10],
        "extra": [],
        "save": [2, 4, 6, 8, 10],
        "evaluate": [4, 8, 10],
        "collect": [],
    }


def test_periods_count_from_the_first_step_of_the_run() -> None:
    happened = walk(Schedule(3, 12, Periods(save=4), stats_period=None))
    assert happened["save"] == happened["metrics"] == [7, 11, 12]


def test_without_periods_the_run_is_one_epoch() -> None:
    assert walk(Schedule(0, 7, Periods(), stats_period=None))["metrics"] == [7]
    assert walk(Schedule(0, 7, Periods(), stats_period=3))["metrics"] == [3, 6, 7]


def test_epochs_are_numbered_from_step_0_of_the_model() -> None:
    epochs = list(Schedule(8, 14, Periods(save=4)).epochs())
    assert [(epoch.number, epoch.end_step, epoch.is_last) for epoch in epochs] == [(2, 12, False), (3, 14, True)]


def test_a_checkpoint_at_the_last_step_leaves_nothing_to_do() -> None:
    schedule = Schedule(8, 8, Periods(save=4))
    assert schedule.nothing_to_do
    assert list(schedule.epochs()) == []


@pytest.mark.parametrize(
    ("save_at", "extra"),
    [
        ((3, 20), [3]),  # T5X saved checkpoint_3, 4 and 7 of 7 steps
        ((5, 8), [5]),
        ((5, 20), [5]),
        ((3, 5, 20), [3, 5]),
        ((8,), []),
        ((4,), []),
    ],
)
def test_extra_checkpoints_are_saved_where_t5x_saved_them(save_at: tuple[int, ...], extra: list[int]) -> None:
    assert walk(Schedule(0, 8, Periods(save=4, save_at=save_at), stats_period=1))["extra"] == extra


@pytest.mark.parametrize("save_at", [(5,), (5, 6), (2, 7), (4, 5, 20), (5, 5, 20)])
def test_extra_checkpoints_at_which_t5x_crashed_are_refused_at_the_start(save_at: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Schedule(0, 8, Periods(save=4, save_at=save_at), stats_period=1)
    assert str(caught.value).startswith(
        f"SaveCheckpointConfig.checkpoint_steps ({list(save_at)}) does not get past step "
    )
    assert str(caught.value).endswith("and end with 8, the last step of the training")


def test_a_training_that_ends_before_its_checkpoint_is_refused() -> None:
    message = (
        "train.total_steps (4) is less than the step of the checkpoint (8): it counts from step 0, so set TRAIN_STEPS "
        "above 8, or set train.relative_steps to the number of steps to add"
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        Schedule(8, 4, Periods())


def test_periods_that_are_no_multiples_are_refused_with_the_nearest_that_is() -> None:
    message = (
        "SaveCheckpointConfig.period (6) must be a multiple of the shortest period, train.eval_period (4): "
        "set SaveCheckpointConfig.period to 8, or the two to the same number"
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        Periods(evaluate=4, save=6)


def test_extra_checkpoints_need_a_period() -> None:
    message = (
        "SaveCheckpointConfig.checkpoint_steps ([5, 8]) comes on top of SaveCheckpointConfig.period (0): "
        "give a period too"
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        Periods(save_at=(5, 8))


@given(
    first=st.integers(0, 30),
    length=st.integers(1, 40),
    shortest=st.integers(1, 12),
    factors=st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    stats=st.one_of(st.none(), st.integers(1, 15)),
)
def test_every_run_ends_at_its_last_step_and_takes_each_step_once(
    first: int, length: int, shortest: int, factors: tuple[int, int, int], stats: int | None
) -> None:
    if 1 not in factors:
        factors = (1, *factors[1:])
    evaluate, save, collect = (factor * shortest for factor in factors)
    happened = walk(Schedule(first, first + length, Periods(evaluate, save, collect), stats))
    assert happened["metrics"] == sorted(set(happened["metrics"]))
    assert happened["metrics"][-1] == first + length
    for what, period in (("evaluate", evaluate), ("save", save), ("collect", collect)):
        due = {first + length, *range(first + period, first + length, period)} if period else set()
        assert set(happened[what]) == due
        assert set(happened[what]) <= set(happened["metrics"])
