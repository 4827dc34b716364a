"""Training runs, evaluates and saves at the steps of its schedule, as T5X was observed to do."""

import gc
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from t5x import trainer
from t5x._errors import ConfigError
from t5x._train_loop import Evaluation, Saver, TrainLoop
from t5x._train_schedule import Periods, Schedule, Stop


def walk(schedule: Schedule) -> dict[str, list[int]]:
    """Returns the steps at which each thing happens, without the checkpoint at the first step."""
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
        ((3, 20), [3]),  # in 7 steps, T5X saved checkpoint_3, 4 and 7
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


class Notes:
    """A trainer, checkpoint manager and evaluator in one, which records its calls."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.saved: list[int] = []
        self.stop_training = False
        self.train_state = SimpleNamespace(step=0)
        self.train_metrics_manager = SimpleNamespace(write_scalar=lambda tag, value, step: self.note(f"{tag}@{step}"))
        self.on_train: Callable[[int], None] = lambda step: None

    def note(self, event: str) -> None:
        self.events.append(event)

    def compile_train(self, batch: Any) -> None:
        self.note("compile train")

    def compile_eval(self, batches: Any) -> None:
        self.note("compile eval")

    def train(self, batches: Any, num_steps: int, start_step: int) -> Any:
        assert start_step == self.train_state.step
        self.on_train(start_step + num_steps)
        self.train_state = SimpleNamespace(step=start_step + num_steps)
        self.note(f"train to {self.train_state.step}")
        return SimpleNamespace(result=lambda: {"loss": 1.0})

    def eval(self, batches: Any) -> Any:
        self.note(f"eval {', '.join(batches)}")
        return {"task": {"loss": 1.0}}

    def evaluate(self, train_state: Any, axes: Any) -> Any:
        self.note("infer")
        return SimpleNamespace(result=lambda: {"task": {"bleu": 1.0}})

    def all_steps(self) -> list[int]:
        return self.saved

    def save(self, train_state: Any, transformations: Any) -> None:
        self.saved.append(train_state.step)
        self.note(f"save {train_state.step}")

    def wait_until_finished(self) -> None:
        self.note("saved")


def loop(
    notes: Notes, schedule: Schedule, *, act: Any = None, first_batch: Any = None, evaluate_first: bool = False
) -> TrainLoop:
    notes.train_state = SimpleNamespace(step=schedule.first_step)
    data = iter(())
    inputs = SimpleNamespace(
        train_iter=data, dummy_batch=lambda partitioner: {}, data_layout=SimpleNamespace(batch_size=64)
    )
    save_cfg = SimpleNamespace(period=schedule.periods.save, state_transformation_fns=())
    return TrainLoop(
        trainer=notes,
        inputs=inputs,
        schedule=schedule,
        saver=Saver(notes, save_cfg, use_orbax=True),
        evaluation=Evaluation(
            trainer=notes,
            datasets={"task": []},
            evaluator=notes,
            train_state_axes=None,
            act=act or (lambda mode, metrics: False),
            concurrent_metrics=act is None,
        ),
        partitioner=None,
        first_batch=first_batch or SimpleNamespace(result=lambda: None),
        evaluate_first=evaluate_first,
        step=schedule.first_step,
    )


@pytest.fixture(autouse=True)
def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t5x.utils.get_zeros_batch_like_dataset", lambda dataset: dataset)


def test_a_checkpoint_is_on_disk_before_the_evaluation_of_its_step() -> None:
    notes = Notes()
    loop(notes, Schedule(0, 4, Periods(evaluate=2, save=2), stats_period=1)).run()
    assert notes.events == [
        "save 0", "compile train", "timing/train_iter_warmup@0",
        "train to 1", "train to 2", "save 2", "saved", "timing/checkpoint_seconds@2",
        "compile eval", "eval task", "infer", "timing/evaluate_seconds@2",
        "train to 3", "train to 4", "save 4", "saved", "timing/checkpoint_seconds@4",
        "eval task", "infer", "timing/evaluate_seconds@4",
    ]  # fmt: skip


def test_an_evaluation_before_the_training_compiles_and_the_next_ones_do_not() -> None:
    notes = Notes()
    loop(notes, Schedule(0, 2, Periods(evaluate=2)), evaluate_first=True).run()
    assert notes.events == [
        "compile eval", "eval task", "infer", "timing/evaluate_seconds@0",
        "compile train", "timing/train_iter_warmup@0",
        "train to 2", "eval task", "infer", "timing/evaluate_seconds@2",
    ]  # fmt: skip


def test_a_run_that_is_at_its_end_is_evaluated_if_asked_for_and_saved_if_it_is_not() -> None:
    notes = Notes()
    ended = loop(notes, Schedule(8, 8, Periods(save=4)), evaluate_first=True)
    ended.run()
    assert notes.events == ["compile eval", "eval task", "infer", "timing/evaluate_seconds@8", "save 8"]
    assert ended.step == 8
    again = Notes()
    again.saved = [8]
    loop(again, Schedule(8, 8, Periods(save=4))).run()
    assert again.events == []


def test_an_action_stops_the_training_within_an_epoch_with_a_checkpoint() -> None:
    notes = Notes()
    seen: list[Any] = []

    def act(mode: str, metrics: Any) -> bool:
        seen.append((mode, metrics))
        return notes.train_state.step == 3

    stopped = loop(notes, Schedule(0, 8, Periods(save=4), stats_period=1), act=act)
    stopped.run()
    assert stopped.step == 3
    assert notes.saved == [0, 3]
    assert seen == [("TRAIN", {"train": {"loss": 1.0}})] * 3


def test_an_action_that_stops_the_last_epoch_fails_as_it_does_in_t5x() -> None:
    notes = Notes()
    last = loop(notes, Schedule(0, 8, Periods(save=4), stats_period=1), act=lambda *_: notes.train_state.step == 6)
    with pytest.raises(
        ConfigError, match=r"stopped the training at step 6, in its last epoch\. The checkpoint is saved"
    ):
        last.run()
    assert notes.saved == [0, 4, 6]


def test_an_action_after_an_evaluation_stops_the_training_before_the_next_epoch() -> None:
    notes = Notes()
    stopped = loop(notes, Schedule(0, 8, Periods(evaluate=4)), act=lambda mode, metrics: mode == "INFER_EVAL")
    stopped.run()
    assert stopped.step == 4


def test_a_preempted_training_leaves_a_checkpoint_on_disk() -> None:
    notes = Notes()

    def preempt(step: int) -> None:
        if step == 3:
            raise trainer.PreemptionError("the machine is going away")

    notes.on_train = preempt
    with pytest.raises(trainer.PreemptionError):
        loop(notes, Schedule(0, 8, Periods(save=4), stats_period=1)).run()
    assert notes.events[-2:] == ["save 2", "saved"]


def test_garbage_is_collected_at_its_period(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setattr(gc, "collect", lambda: notes.note("collect"))
    loop(notes, Schedule(0, 6, Periods(collect=2, save=6))).run()
    assert [event for event in notes.events if event.startswith(("train", "collect", "save "))] == [
        "save 0", "train to 2", "collect", "train to 4", "collect", "train to 6", "collect", "save 6",
    ]  # fmt: skip


def test_a_dataset_without_a_single_batch_is_told_with_the_batch_size() -> None:
    def empty() -> None:
        raise StopIteration

    with pytest.raises(ConfigError, match=r"not one batch of train_dataset_cfg\.batch_size \(64\) examples"):
        loop(Notes(), Schedule(0, 6, Periods()), first_batch=SimpleNamespace(result=empty)).run()
