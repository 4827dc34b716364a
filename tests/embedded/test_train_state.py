"""A train state keeps parameters, optimizer state, step and mutables together, and goes into a dict and back."""

from __future__ import annotations

import flax.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from small_states import SCALE, assert_same, axes, flat, state, variables
from t5x import adafactor, optimizers, train_state

MUTABLES = {"batch_stats": {"mean": jnp.zeros((4,))}, "batch_stats_axes": {"mean_axes": axes("embed")}}


def test_state_dict_has_the_layout_of_checkpoints() -> None:
    paths = flat(state(step=7).state_dict())
    moments = {f"state/param_states/{p}/{m}" for p in ("enc/kernel", "scale") for m in ("v_row", "v_col", "v", "m")}
    assert paths.keys() == {"target/enc/kernel", "target/scale", "state/step"} | moments
    assert paths["state/step"] == 7
    assert paths["state/step"].dtype == np.int32


def test_a_state_restores_from_its_dict() -> None:
    source = state(step=9)
    other = state(step=0).replace_params(flax.core.freeze({"enc": {"kernel": jnp.zeros((8, 4))}, "scale": jnp.ones(4)}))
    assert_same(other.restore_state(source.state_dict()).state_dict(), source.state_dict())


def test_mutables_are_part_of_the_dict_only_when_there_are_any() -> None:
    assert "flax_mutables" not in state().state_dict()
    made = train_state.FlaxOptimTrainState.create(optimizers.sgd(0.1), flax.core.freeze({**variables(), **MUTABLES}))
    assert flat(made.state_dict())["flax_mutables/batch_stats/mean"].shape == (4,)
    moved = made.replace_flax_mutables(flax.core.freeze({"batch_stats": {"mean": jnp.ones((4,))}}))
    assert_same(made.restore_state(moved.state_dict()).flax_mutables, moved.flax_mutables)
    assert made.as_logical_axes().flax_mutables["batch_stats"]["mean"] == PartitionSpec("embed")


def test_an_update_trains_and_counts() -> None:
    made = train_state.FlaxOptimTrainState.create(optimizers.sgd(0.5), variables())
    gradient = {"enc": {"kernel": jnp.ones((8, 4))}, "scale": jnp.full((4,), 2.0)}
    updated = made.apply_gradient(flax.core.freeze(gradient), learning_rate=99.0)  # optax has a rate of its own
    np.testing.assert_allclose(updated.params["scale"], SCALE - 1.0, rtol=1e-6)
    assert int(updated.step) == 1


def test_logical_axes_follow_the_optimizer_state() -> None:
    logical = state().as_logical_axes()
    assert logical.step is None
    assert logical.params["enc"]["kernel"] == PartitionSpec("embed", "mlp")
    kernel, scale = logical.param_states["enc"]["kernel"], logical.param_states["scale"]
    assert (kernel.v, kernel.v_row, kernel.m) == (None, None, None)  # factored
    assert (scale.v, scale.m) == (PartitionSpec("embed"), None)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_a_parameter_without_axis_names_is_refused_by_name() -> None:
    unnamed = flax.core.freeze({"params": {"a": jnp.ones(2), "b": jnp.ones(2)}, "params_axes": {"a_axes": axes("mlp")}})
    with pytest.raises(ValueError, match=r"Missing axis names for parameters: \{'b'\}") as error:
        train_state.FlaxOptimTrainState.create(adafactor.Adafactor(), unnamed)
    assert error.value.__notes__ == [
        "They are missing in the model's collection 'params_axes': declare them with param_with_axes."
    ]
    with pytest.raises(ValueError, match=r"Missing axis names for parameters: \{'b'\}"):
        train_state.InferenceState.create(unnamed)


def test_an_optimizer_that_needs_axis_names_says_so() -> None:
    with pytest.raises(ValueError, match="supports params_axes for model-based partitioning, but"):
        train_state.FlaxOptimTrainState.create(adafactor.Adafactor(), flax.core.freeze({"params": {"a": jnp.ones(2)}}))


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_an_optimizer_without_partitioning_is_refused_by_name() -> None:
    class Plain(optimizers.OptimizerDef):
        def init_state(self, params):
            return optimizers.OptimizerState(0, {})

    made = train_state.FlaxOptimTrainState.create(Plain(None), variables())
    with pytest.raises(ValueError, match="Plain cannot be partitioned by axis names"):
        made.as_logical_axes()


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_an_inference_state_takes_a_training_state_without_its_optimizer() -> None:
    made = train_state.InferenceState.create(variables())
    restored = made.restore_state(state(step=5).state_dict())
    assert int(restored.step) == 5
    assert flat(restored.state_dict()).keys() == {"target/enc/kernel", "target/scale", "state/step"}
    with pytest.raises(NotImplementedError, match="cannot be trained"):
        restored.apply_gradient(None, learning_rate=0.1)
    with pytest.raises(NotImplementedError, match="no optimizer state"):
        _ = restored.param_states


def test_both_states_are_train_states() -> None:
    assert isinstance(state(), train_state.TrainState)
