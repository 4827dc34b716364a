"""Optax optimizers train, save and partition behind T5X's interface, alone and several at once."""

from __future__ import annotations

from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import traverse_util
from jax.sharding import PartitionSpec
from small_states import factoring_adafactor, flat, state, variables
from t5x import adafactor, optimizers

PARAMS = {"enc": {"kernel": jnp.arange(6.0).reshape(2, 3)}, "bias": jnp.ones((3,))}
AXES = {"enc": {"kernel": PartitionSpec("embed", "mlp")}, "bias": PartitionSpec("mlp")}
GRADS = jax.tree.map(lambda x: 0.1 * x + 0.2, PARAMS)
KERNELS = traverse_util.ModelParamTraversal(lambda path, _: "kernel" in path)
OTHERS = traverse_util.ModelParamTraversal(lambda path, _: "kernel" not in path)


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb", "lion", "sgd", "rmsprop", "adagrad", "noisy_sgd", "yogi"])
def test_a_wrapped_optimizer_updates_like_optax(name: str) -> None:
    settings: dict[str, Any] = {"learning_rate": 0.1}
    if name == "noisy_sgd":
        settings["key"] = 1
    transformation = getattr(optax, name)(**settings)
    updates, _ = transformation.update(GRADS, transformation.init(PARAMS), PARAMS)
    made = getattr(optimizers, name)(**settings).create(PARAMS).apply_gradient(GRADS, learning_rate=7.0)
    jax.tree.map(np.testing.assert_array_equal, made.target, optax.apply_updates(PARAMS, updates))
    assert made.state.step == 1


def test_transformations_chain_from_a_list() -> None:
    made = optimizers.chain([optax.clip(0.1), optax.sgd(1.0)]).create(PARAMS).apply_gradient(GRADS)
    np.testing.assert_allclose(made.target["bias"], np.ones(3) - 0.1, rtol=1e-6)


def test_a_wrapped_state_goes_into_a_dict_without_empty_branches_and_back() -> None:
    made = optimizers.adamw(0.1).create(PARAMS).apply_gradient(GRADS)
    saved = made.state_dict()
    leaves = flat(saved["state"])
    moments = {f"param_states/0/{m}/{p}" for m in ("mu", "nu") for p in ("enc/kernel", "bias")}
    assert leaves.keys() == {"step", "param_states/0/count"} | moments
    restored = optimizers.adamw(0.1).create(PARAMS).restore_state(saved)
    jax.tree.map(np.testing.assert_array_equal, restored.state, made.state)
    assert jax.tree.structure(restored.state) == jax.tree.structure(made.state)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_a_dict_that_lacks_a_moment_is_refused_by_its_path() -> None:
    made = optimizers.adam(0.1).create(PARAMS)
    saved = made.state_dict()
    del saved["state"]["param_states"]["0"]["nu"]["bias"]
    with pytest.raises(ValueError, match="lacks what the optimizer needs: state/param_states/0/nu/bias"):
        made.restore_state(saved)


STATES = [
    optax.adam(0.1),
    optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(0.1, 0.0, 10))),
    optax.sgd(0.1, momentum=0.9),
    optax.masked(optax.adam(0.1), {"enc": {"kernel": True}, "bias": False}),
    optax.MultiSteps(optax.adam(0.1), 2).gradient_transformation(),
    optax.multi_transform({"a": optax.adam(0.1), "b": optax.sgd(0.1)}, {"enc": {"kernel": "a"}, "bias": "b"}),
    optax.apply_if_finite(optax.rmsprop(0.1), 3),
]


@pytest.mark.parametrize("transformation", STATES, ids=range(len(STATES)))
def test_arrays_like_parameters_have_their_axes_and_others_none(transformation: optax.GradientTransformation) -> None:
    made = optimizers.OptaxWrapper(transformation).create(PARAMS)
    logical = made.optimizer_def.derive_logical_axes(made, AXES)
    arrays = flat(made.state_dict())
    names = traverse_util.flatten_dict(logical.state_dict(), sep="/")
    assert names.keys() == arrays.keys()
    shapes = {(2, 3): AXES["enc"]["kernel"], (3,): AXES["bias"], (): None}
    assert {path: shapes[arrays[path].shape] for path in arrays} == names


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
@pytest.mark.parametrize(
    ("transformation", "state_type"),
    [
        (optax.adafactor(0.1), "FactoredState"),
        (optax.inject_hyperparams(optax.adam)(learning_rate=0.1), "InjectStatefulHyperparamsState"),
    ],
)
def test_a_state_that_t5x_cannot_partition_is_refused_by_name(transformation: Any, state_type: str) -> None:
    made = optimizers.OptaxWrapper(transformation).create(PARAMS)
    with pytest.raises(ValueError, match=rf"{state_type} is not known to be partitionable .*: .*ScaleByAdamState"):
        made.optimizer_def.derive_logical_axes(made, AXES)


def multi() -> optimizers.MultiOptimizer:
    return optimizers.MultiOptimizer(
        [(KERNELS, factoring_adafactor(beta1=0.9)), (OTHERS, adafactor.Adafactor(0.5, factored=False))]
    )


def test_each_optimizer_trains_its_own_parameters() -> None:
    params, grads = variables()["params"], jax.tree.map(jnp.ones_like, variables()["params"])
    made = multi().create(params).apply_gradient(grads)
    kernels = factoring_adafactor(beta1=0.9).create({"enc": params["enc"]}).apply_gradient({"enc": grads["enc"]})
    others = adafactor.Adafactor(0.5, factored=False).create({"scale": params["scale"]})
    others = others.apply_gradient({"scale": grads["scale"]})
    alone = {**kernels.target, **others.target}
    jax.tree.map(np.testing.assert_array_equal, flax.core.unfreeze(made.target), alone)
    states = {**kernels.state.param_states, **others.state.param_states}
    jax.tree.map(np.testing.assert_array_equal, flax.core.unfreeze(made.state.param_states), states)
    assert int(made.state.step) == 1


def test_overrides_reach_every_optimizer() -> None:
    rates = [hp.learning_rate for hp in multi().update_hyper_params(learning_rate=0.25)]
    assert rates == [0.25, 0.25]


def test_parameters_that_no_optimizer_has_stay_and_have_no_state() -> None:
    params = variables()["params"]
    made = optimizers.MultiOptimizer([(KERNELS, factoring_adafactor())]).create(params)
    assert made.state.param_states["scale"] is None
    trained = made.apply_gradient(jax.tree.map(jnp.ones_like, params))
    np.testing.assert_array_equal(trained.target["scale"], params["scale"])
    assert trained.state.param_states["scale"] is None


def test_axes_of_several_optimizers_are_put_together() -> None:
    logical = state(optimizer=multi()).as_logical_axes()
    kernel, scale = logical.param_states["enc"]["kernel"], logical.param_states["scale"]
    assert (kernel.v, kernel.m) == (None, PartitionSpec("embed", "mlp"))
    assert (scale.v, scale.m) == (PartitionSpec("embed"), None)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_one_parameter_cannot_have_two_optimizers() -> None:
    every = traverse_util.ModelParamTraversal(lambda path, _: True)
    both = optimizers.MultiOptimizer([(KERNELS, adafactor.Adafactor()), (every, adafactor.Adafactor())])
    with pytest.raises(ValueError, match=r"matched by several: enc/kernel by optimizers \[0, 1\]"):
        both.create(variables()["params"])


@pytest.mark.embedded("T5X fails inside Flax")
def test_wrapped_optimizers_cannot_be_divided() -> None:
    mixed = optimizers.MultiOptimizer([(KERNELS, optimizers.adam(0.1))])
    with pytest.raises(TypeError, match=r"cannot divide the state of OptaxWrapper.* optax\.multi_transform"):
        mixed.create(variables()["params"])


def test_an_optimizer_of_another_package_is_missed_by_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'shampoo'"):
        _ = optimizers.shampoo
