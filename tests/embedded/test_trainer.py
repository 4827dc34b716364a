"""The trainer takes steps, measures them and reports errors, on a model of two weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clu.metrics
import clu.values
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clu import asynclib
from recorded import read_scalars
from t5x import metrics as metrics_lib
from t5x import partitioning, train, trainer
from t5x._errors import ConfigError

PARAMS = {"layer": {"scale": jnp.array([1.0, -2.0])}}


@flax.struct.dataclass
class State:
    """A train state that performs gradient descent."""

    step: Any
    params: Any
    flax_mutables: Any = None

    def apply_gradient(self, grads: Any, learning_rate: Any, flax_mutables: Any = None) -> State:
        moved = jax.tree.map(lambda param, grad: param - learning_rate * grad, self.params, grads)
        return State(self.step + 1, moved, flax_mutables)


class Line:
    """A model whose loss is the summed squared error of ``scale · x`` against ``y``, plus noise drawn from the key."""

    def loss_fn(self, params: Any, batch: Any, dropout_rng: Any) -> tuple[Any, dict[str, Any]]:
        loss = jnp.sum((batch["x"] @ params["layer"]["scale"] - batch["y"]) ** 2)
        return loss, {
            "loss": metrics_lib.AveragePerStep(total=loss),
            "noise": metrics_lib.Sum(jax.random.uniform(dropout_rng)),
            "last_y": clu.metrics.LastValue.from_model_output(batch["y"][-1:]),
        }

    def eval_fn(self, params: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        loss, metrics = self.loss_fn(params, batch, jax.random.PRNGKey(0))
        return loss, {"loss": metrics["loss"]}


class Counting(Line):
    """A line that also counts, in Flax mutables, the examples that it has seen."""

    def loss_fn(self, params: Any, batch: Any, dropout_rng: Any, mutables: Any = None) -> tuple[Any, Any]:
        loss, metrics = super().loss_fn(params, batch, dropout_rng)
        return loss, (metrics, {"seen": mutables["seen"] + batch["y"].shape[0]})


@pytest.fixture
def batch() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(4, 2)).astype(np.float32), "y": np.arange(4, dtype=np.float32)}


def start(**more: Any) -> State:
    return State(jnp.array(0), jax.tree.map(jnp.copy, PARAMS), **more)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[trainer.Trainer]:
    """Makes a trainer of the line whose metrics go to the test's folder."""
    state = start()
    with trainer.Trainer(
        Line(),
        state,
        partitioning.PjitPartitioner(num_partitions=1),
        eval_names=["task", "n" * 200],
        summary_dir=str(tmp_path),
        train_state_axes=jax.tree.map(lambda _: None, state),
        rng=jax.random.PRNGKey(3),
        learning_rate_fn=lambda step: 0.01 * (step + 1),
        num_microbatches=None,
    ) as made:
        yield made


def test_training_takes_the_steps_and_writes_their_merged_metrics(
    made: trainer.Trainer, batch: dict[str, Any], tmp_path: Path
) -> None:
    made.compile_train(batch)
    summary = made.train(iter([batch] * 3), 3, start_step=0).result()
    scale, total = PARAMS["layer"]["scale"], 0.0
    for step in range(3):
        error = batch["x"] @ scale - batch["y"]
        total += float(np.sum(error**2))
        scale = scale - 0.01 * (step + 1) * 2 * error @ batch["x"]
    assert int(made.train_state.step) == 3
    np.testing.assert_allclose(made.train_state.params["layer"]["scale"], scale, rtol=1e-5)
    assert summary["loss"].value == pytest.approx(total / 3, rel=1e-5)
    assert summary["learning_rate"].value == pytest.approx(0.02)
    assert summary["learning_rate/current"].value == pytest.approx(0.03)
    made.close()
    written = read_scalars(tmp_path)["train"]
    assert written["loss"] == {"3": pytest.approx(float(summary["loss"].value))}
    assert set(written) == {
        "loss", "noise", "last_y", "learning_rate", "learning_rate/current", "timing/uptime",
        "timing/compilation_seconds",
    }  # fmt: skip


def test_evaluation_merges_the_batches_of_each_task_and_leaves_the_state(
    made: trainer.Trainer, batch: dict[str, Any], tmp_path: Path
) -> None:
    long_name = "n" * 200
    made.compile_eval({"task": batch, long_name: batch})
    summaries = made.eval({"task": iter([batch, batch]), long_name: iter([batch])})
    one = float(Line().eval_fn(PARAMS, batch)[0])
    assert float(summaries["task"]["loss"].value) == pytest.approx(one)
    assert int(made.train_state.step) == 0
    made.close()
    folders = read_scalars(tmp_path)
    assert set(folders) == {"train", "training_eval/task", f"training_eval/{'n' * 113}"}
    assert set(folders["training_eval/task"]) == {"loss", "timing/compilation_seconds"}


@pytest.mark.parametrize("number", [2, 4])
def test_microbatches_give_the_gradients_of_the_whole_batch(batch: dict[str, Any], number: int) -> None:
    """Their metrics are merged in order, and all of them use the same key, as in T5X."""
    key = jax.random.PRNGKey(5)
    whole, _, _ = trainer.accumulate_grads_microbatched(Line(), start(), batch, key, None)
    parts, metrics, mutables = trainer.accumulate_grads_microbatched(Line(), start(), batch, key, number)
    np.testing.assert_allclose(parts["layer"]["scale"], whole["layer"]["scale"], rtol=1e-5)
    assert mutables is None
    assert float(metrics["loss"].total) == pytest.approx(float(Line().loss_fn(PARAMS, batch, key)[0]), rel=1e-5)
    assert int(metrics["loss"].steps) == number
    drawn = float(jax.random.uniform(jax.random.split(key)[1]))
    assert float(metrics["noise"].total) == pytest.approx(number * drawn, rel=1e-5)
    assert float(metrics["last_y"].compute()) == 3.0


def test_the_program_does_not_grow_with_the_number_of_microbatches(batch: dict[str, Any]) -> None:
    def equations(number: int) -> int:
        def step(state: Any, batch: dict[str, Any]) -> Any:
            return trainer.accumulate_grads_microbatched(Line(), state, batch, jax.random.PRNGKey(0), number)[:2]

        return len(jax.make_jaxpr(step)(start(), batch).jaxpr.eqns)

    assert equations(2) == equations(4)


def test_mutables_go_from_one_microbatch_to_the_next(batch: dict[str, Any]) -> None:
    state = start(flax_mutables={"seen": jnp.array(10)})
    for number, expected in ((None, 14), (2, 14)):
        _, _, mutables = trainer.accumulate_grads_microbatched(Counting(), state, batch, jax.random.PRNGKey(0), number)
        assert int(mutables["seen"]) == expected
    stepped, _ = trainer.train_with_lr(state, batch, 0.1, jax.random.PRNGKey(0), Counting(), 2)
    assert int(stepped.flax_mutables["seen"]) == 14


def test_microbatches_that_do_not_fit_are_told(batch: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"num_microbatches \(3\) does not divide the batch size \(4\): 1 examples"):
        trainer.accumulate_grads_microbatched(Line(), start(), batch, jax.random.PRNGKey(0), 3)


def test_weight_metrics_say_how_large_the_weights_are_and_how_far_they_moved() -> None:
    old, new = start(), State(1, {"layer": {"scale": jnp.array([2.0, -4.0])}})
    gradients = {"layer": {"scale": jnp.array([3.0, 4.0])}}
    metrics = trainer.WeightMetricsComputer().compute_metrics(gradients, old, new)
    assert {tag: pytest.approx(float(metric.compute()), rel=1e-5) for tag, metric in metrics.items()} == {
        "weight_rms/layer/scale": np.sqrt(10),
        "weight_gradient_rms/layer/scale": np.sqrt(12.5),
        "weight_update_rms/layer/scale": np.sqrt(2.5),
        "weight_update_divided_by_weight_rms/layer/scale": 1.0,
        "weight_max/layer/scale": 4.0,
        "weight_gradient_norm": 5.0,
    }


class Broken(metrics_lib.Sum):
    """A metric that cannot be summarized."""

    def compute_value(self) -> Any:
        raise OverflowError("too much")


def test_what_goes_wrong_in_the_background_is_raised(tmp_path: Path) -> None:
    manager = trainer.MetricsManager("train", str(tmp_path))
    manager.start_duration_timer()
    future = manager.write_metrics_summary({"loss": Broken(1.0)}, step=1, num_steps=1)
    with pytest.raises(OverflowError, match="too much"):
        future.result()
    with pytest.raises(asynclib.AsyncError, match="too much"):
        manager.close()


def test_a_duration_is_measured_from_start_to_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Waiting for a buffer that has been donated since then returns at once."""
    moments = iter([10.0, 50.0])
    monkeypatch.setattr(trainer, "_time", lambda: next(moments))
    manager = trainer.MetricsManager("eval", str(tmp_path))
    donated = jnp.zeros(1)
    donated.delete()
    manager.start_duration_timer(block_on=donated)
    metrics = {"steps_per_second": metrics_lib.StepsPerTime(), "seconds": metrics_lib.Time()}
    summary = manager.write_metrics_summary(metrics, step=4, num_steps=2).result()
    assert {tag: float(value.value) for tag, value in summary.items()} == {
        "steps_per_second": pytest.approx(0.05),
        "seconds": 40.0,
    }
    with pytest.raises(ValueError, match=r"had not been started: call start_duration_timer\(\) first"):
        manager.write_metrics_summary(metrics, step=5, num_steps=1)
    manager.close()
    manager.close()
    with pytest.raises(ValueError, match="is closed"):
        manager.write_scalar("x", 1.0, 1)


def test_only_the_first_process_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    manager = trainer.MetricsManager("train", str(tmp_path))
    manager.write_scalar("x", 1.0, 1)
    manager.close()
    assert manager.summary_dir == str(tmp_path / "train")
    assert list(tmp_path.iterdir()) == []


def losses(*values: float) -> list[dict[str, dict[str, Any]]]:
    return [{"task": {"loss": clu.values.Scalar(value)}} for value in values]


@pytest.mark.parametrize(
    ("mode", "tolerances", "values", "stops_at"),
    [
        ("min", {}, [3.0, 2.0, 1.0, 0.5], None),
        ("min", {}, [3.0, 2.0, 2.0, 2.5], 3),
        ("min", {}, [1.0, 2.0, 1.5, 1.6, 1.7], 4),
        ("max", {}, [1.0, 2.0, 3.0], None),
        ("max", {}, [3.0, 2.0, 2.0], 2),
        ("min", {"atol": 0.5}, [3.0, 2.6, 2.2], 2),
        ("min", {"rtol": 0.1}, [10.0, 9.5, 9.0], 2),
        ("max", {"atol": 0.1, "rtol": 0.1}, [10.0, 10.5, 12.0], None),
    ],
)
def test_training_stops_early_when_a_metric_stops_improving(
    mode: str, tolerances: dict[str, float], values: list[float], stops_at: int | None
) -> None:
    action = trainer.EarlyStoppingAction(("task", "loss"), mode, patience=3, **tolerances)
    stopped = [action.run(None, metrics) for metrics in losses(*values)]
    assert (stopped.index(True) if True in stopped else None) == stops_at


def test_early_stopping_takes_the_floats_of_seqio_and_refuses_nonsense() -> None:
    action = trainer.EarlyStoppingAction(("task", "bleu"), "max", patience=2)
    assert [action.run(None, {"task": {"bleu": value}}) for value in (1.0, 1.0)] == [False, True]
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', not 'least'"):
        trainer.EarlyStoppingAction(("task", "loss"), "least")
    with pytest.raises(ValueError, match=r"atol \(0.0\) and .rtol \(-1\) must not be negative"):
        trainer.EarlyStoppingAction(("task", "loss"), "min", rtol=-1)


def test_training_stops_at_a_loss_that_is_no_number() -> None:
    action = trainer.TerminateOnNanAction("task")
    found = [action.run(None, metrics) for metrics in losses(1.0, float("nan"), float("inf"))]
    assert found == [False, True, True]


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"other": {}}, "there is no task 'task'; there are ['other']"),
        ({"task": {"accuracy": 1}}, "task 'task' has no metric 'loss'; it has ['accuracy']"),
        ({"task": {"loss": clu.values.Text("x")}}, "metric 'loss' of task 'task' is a Text, not a scalar"),
    ],
)
def test_an_action_that_finds_nothing_says_what_there_is(
    metrics: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr("absl.logging.warning", lambda text, *values: warned.append(text % values))
    assert trainer.TerminateOnNanAction("task").run(None, metrics) is False
    assert warned == [f"TerminateOnNanAction did nothing: {told}."]


def test_all_actions_run_and_any_of_them_stops() -> None:
    seen: list[str] = []

    def action(name: str, stops: bool) -> Any:
        return SimpleNamespace(run=lambda state, metrics_by_task: (seen.append(json.dumps([name, state])), stops)[1])

    mode = trainer.ActionMode.TRAIN_EVAL
    actions = {mode: [action("a", True), action("b", False)]}
    assert train.run_actions(mode, actions, "state", {"task": {}}) is True
    assert seen == ['["a", "state"]', '["b", "state"]']
    assert train.run_actions(trainer.ActionMode.TRAIN, actions, "state", {"task": {}}) is False
    with pytest.raises(RuntimeError, match="there are no metrics for the TRAIN_EVAL actions"):
        train.run_actions(mode, actions, "state", {})
