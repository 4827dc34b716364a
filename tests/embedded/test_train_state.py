"""Train states and optimizers convert to dicts and back; the dicts are compared, merged and renamed leaf by leaf."""

from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import traverse_util
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec
from small_states import assert_same, axes, factoring_adafactor, flat, state, variables
from t5x import adafactor, optimizers, state_utils, train_state

MUTABLES = {"batch_stats": {"mean": jnp.zeros((4,))}, "batch_stats_axes": {"mean_axes": axes("embed")}}


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


def test_logical_axes_follow_the_optimizer_state() -> None:
    logical = state().as_logical_axes()
    assert logical.step is None
    assert logical.params["enc"]["kernel"] == PartitionSpec("embed", "mlp")
    kernel, scale = logical.param_states["enc"]["kernel"], logical.param_states["scale"]
    assert (kernel.v, kernel.v_row, kernel.m) == (None, None, None)  # factored
    assert (scale.v, scale.m) == (PartitionSpec("embed"), None)


def test_an_optimizer_that_needs_axis_names_says_so() -> None:
    with pytest.raises(ValueError, match="supports params_axes for model-based partitioning, but"):
        train_state.FlaxOptimTrainState.create(adafactor.Adafactor(), flax.core.freeze({"params": {"a": jnp.ones(2)}}))


SPEC = {"driver": "zarr", "kvstore": {"driver": "file", "path": "a"}, "metadata": {"shape": [2]}}
NAMES = st.sampled_from(["a", "b", "c", "enc", "dec"])
FLAT = st.dictionaries(st.tuples(NAMES, NAMES, NAMES), st.integers(), max_size=8)


def nested(flat: dict) -> dict:
    return traverse_util.unflatten_dict(flat)


def test_a_stored_array_is_a_leaf() -> None:
    assert state_utils.flatten_state_dict({"t": {"x": SPEC, "y": 1}}) == {"t/x": SPEC, "t/y": 1}
    assert state_utils.tensorstore_leaf((), {**SPEC, "dtype": "float32"})
    assert not state_utils.tensorstore_leaf((), {"driver": "zarr", "metadata": {}})


def test_empty_branches_are_kept_on_demand() -> None:
    tree = {"a": {}, "b": {"c": 1}}
    assert state_utils.flatten_state_dict(tree) == {"b/c": 1}
    assert state_utils.flatten_state_dict(tree, keep_empty_nodes=True).keys() == {"a", "b/c"}
    assert state_utils.get_name_tree(tree, keep_empty_nodes=True) == {"a": "a", "b": {"c": "b/c"}}


@given(FLAT)
def test_a_name_tree_names_every_leaf_by_its_path(flat: dict) -> None:
    names = state_utils.get_name_tree(nested(flat))
    assert state_utils.flatten_state_dict(names) == {"/".join(p): "/".join(p) for p in flat}


@given(FLAT, FLAT)
def test_intersecting_keeps_shared_paths_with_the_first_values(first: dict, second: dict) -> None:
    kept = state_utils.intersect_state(nested(first), nested(second))
    assert traverse_util.flatten_dict(kept) == {p: v for p, v in first.items() if p in second}


@given(FLAT, FLAT, st.booleans())
def test_merging_fills_gaps_and_overwrites_on_demand(first: dict, second: dict, overwrite: bool) -> None:
    merged = state_utils.merge_state(nested(first), nested(second), overwrite=overwrite)
    assert traverse_util.flatten_dict(merged) == ({**first, **second} if overwrite else {**second, **first})


@given(FLAT, FLAT)
def test_without_rules_a_state_keeps_its_leaves(stored: dict, model: dict) -> None:
    assert traverse_util.flatten_dict(state_utils.apply_assignment_map(nested(stored), nested(model), [])) == stored


def assign(stored: dict, model: dict, rules: list, **settings) -> dict:
    stored, model = (traverse_util.unflatten_dict(tree, sep="/") for tree in (stored, model))
    return state_utils.flatten_state_dict(state_utils.apply_assignment_map(stored, model, rules, **settings))


@pytest.mark.parametrize(
    ("stored", "model", "rules", "expected"),
    [
        # A rule renames a leaf, and the old name disappears.
        ({"t/old/k": 1}, {"t/new/k": 0}, [(r"t/new/(.*)", r"t/old/\1")], {"t/new/k": 1}),
        # Names are swapped in one pass.
        ({"t/a": 1, "t/b": 2}, {"t/a": 0, "t/b": 0}, [("t/a", "t/b"), ("t/b", "t/a")], {"t/a": 2, "t/b": 1}),
        # One stored leaf serves several names.
        ({"t/a": 1}, {"t/x": 0, "t/y": 0}, [("t/[xy]", "t/a")], {"t/x": 1, "t/y": 1}),
        # The first rule that matches counts.
        ({"t/a": 1, "t/b": 2}, {"t/x": 0}, [("t/x", "t/a"), (".*", "t/b")], {"t/x": 1, "t/b": 2}),
        # None leaves a leaf at its initial value although the checkpoint has it.
        ({"t/a": 1, "t/b": 2}, {"t/a": 0, "t/b": 0}, [("t/a", None)], {"t/b": 2}),
        # A leaf that moved still serves its own name if no rule matches that name.
        ({"t/a": 1}, {"t/a": 0, "t/x": 0}, [("t/x", "t/a")], {"t/a": 1, "t/x": 1}),
        # Leaves that the model lacks are kept.
        ({"t/a": 1, "t/z": 5}, {"t/a": 0}, [], {"t/a": 1, "t/z": 5}),
    ],
)
def test_rules_rename(stored: dict, model: dict, rules: list, expected: dict) -> None:
    assert assign(stored, model, rules, require_all_rules_match=False) == expected


def test_a_run_that_resumes_is_not_renamed_again() -> None:
    assert assign({"t/a": 1}, {"t/b": 0}, [("t/b", "t/a")], is_resuming=True) == {"t/a": 1}


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


@pytest.mark.embedded("T5X fails inside Flax")
def test_wrapped_optimizers_cannot_be_divided() -> None:
    mixed = optimizers.MultiOptimizer([(KERNELS, optimizers.adam(0.1))])
    with pytest.raises(TypeError, match=r"cannot divide the state of OptaxWrapper.* optax\.multi_transform"):
        mixed.create(variables()["params"])


def test_an_optimizer_of_another_package_is_missed_by_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'shampoo'"):
        _ = optimizers.shampoo


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_a_parameter_without_axis_names_is_refused_by_name(self) -> None:
        unnamed = flax.core.freeze(
            {"params": {"a": jnp.ones(2), "b": jnp.ones(2)}, "params_axes": {"a_axes": axes("mlp")}}
        )
        with pytest.raises(ValueError, match=r"Missing axis names for parameters: \{'b'\}") as error:
            train_state.FlaxOptimTrainState.create(adafactor.Adafactor(), unnamed)
        assert error.value.__notes__ == [
            "They are missing in the model's collection 'params_axes': declare them with param_with_axes."
        ]
        with pytest.raises(ValueError, match=r"Missing axis names for parameters: \{'b'\}"):
            train_state.InferenceState.create(unnamed)

    def test_an_optimizer_without_partitioning_is_refused_by_name(self) -> None:
        class Plain(optimizers.OptimizerDef):
            def init_state(self, params):
                return optimizers.OptimizerState(0, {})

        made = train_state.FlaxOptimTrainState.create(Plain(None), variables())
        with pytest.raises(ValueError, match="Plain cannot be partitioned by axis names"):
            made.as_logical_axes()

    def test_an_inference_state_takes_a_training_state_without_its_optimizer(self) -> None:
        made = train_state.InferenceState.create(variables())
        restored = made.restore_state(state(step=5).state_dict())
        assert int(restored.step) == 5
        assert flat(restored.state_dict()).keys() == {"target/enc/kernel", "target/scale", "state/step"}
        with pytest.raises(NotImplementedError, match="cannot be trained"):
            restored.apply_gradient(None, learning_rate=0.1)
        with pytest.raises(NotImplementedError, match="no optimizer state"):
            _ = restored.param_states

    def test_a_rule_without_source_names_the_leaves_there_are(self) -> None:
        message = r"gives 't/x' the checkpoint's 't/nope', which it does not have. It has: \['t/a'\]"
        with pytest.raises(ValueError, match=message):
            assign({"t/a": 1}, {"t/x": 0}, [("t/x", "t/nope")])

    def test_a_rule_that_fits_nothing_is_refused_unless_allowed(self) -> None:
        rules = [("t/a", "t/a"), ("t/typo", "t/a")]
        with pytest.raises(ValueError, match=r"no parameter of the model is left for these patterns: \['t/typo'\]"):
            assign({"t/a": 1}, {"t/a": 0}, rules)
        assert assign({"t/a": 1}, {"t/a": 0}, rules, require_all_rules_match=False) == {"t/a": 1}

    def test_a_dict_that_lacks_a_moment_is_refused_by_its_path(self) -> None:
        made = optimizers.adam(0.1).create(PARAMS)
        saved = made.state_dict()
        del saved["state"]["param_states"]["0"]["nu"]["bias"]
        with pytest.raises(ValueError, match="lacks what the optimizer needs: state/param_states/0/nu/bias"):
            made.restore_state(saved)

    @pytest.mark.parametrize(
        ("transformation", "state_type"),
        [
            (optax.adafactor(0.1), "FactoredState"),
            (optax.inject_hyperparams(optax.adam)(learning_rate=0.1), "InjectStatefulHyperparamsState"),
        ],
    )
    def test_a_state_that_t5x_cannot_partition_is_refused_by_name(self, transformation: Any, state_type: str) -> None:
        made = optimizers.OptaxWrapper(transformation).create(PARAMS)
        with pytest.raises(ValueError, match=rf"{state_type} is not known to be partitionable .*: .*ScaleByAdamState"):
            made.optimizer_def.derive_logical_axes(made, AXES)

    def test_one_parameter_cannot_have_two_optimizers(self) -> None:
        every = traverse_util.ModelParamTraversal(lambda path, _: True)
        both = optimizers.MultiOptimizer([(KERNELS, adafactor.Adafactor()), (every, adafactor.Adafactor())])
        with pytest.raises(ValueError, match=r"matched by several: enc/kernel by optimizers \[0, 1\]"):
            both.create(variables()["params"])
