"""Each part of a train state is made on its own devices, by the names of its axes, which rules may change."""

import types
from pathlib import Path
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.linen import partitioning as flax_partitioning
from flax.linen.partitioning import AxisMetadata
from t5x import partitioning, utils


def table(state_dict: Any, tmp_path: Path) -> list[str]:
    """Returns the table of a state whose logical axes and partitioning are given next to each leaf."""

    def part(index: int) -> Any:
        def pick(tree: Any) -> Any:
            return {k: pick(v) for k, v in tree.items()} if isinstance(tree, dict) else tree[index]

        return types.SimpleNamespace(state_dict=lambda: pick(state_dict))

    partitioner = types.SimpleNamespace(get_logical_axes=lambda _: part(1), get_mesh_axes=lambda _: part(2))
    utils.log_model_info(str(tmp_path / "info"), part(0), partitioner)
    return [" ".join(line.split()) for line in (tmp_path / "info").read_text().splitlines()]


def test_table_has_a_row_for_every_kind_of_leaf(tmp_path: Path) -> None:
    spec = jax.sharding.PartitionSpec
    state_dict = {
        "target": {
            "b": (np.zeros((2, 3)), ("heads", "kv"), spec("model", None)),
            "a": {"x": (np.zeros(4), None, None)},
        },
        "state": {
            "none": (None, None, None),
            "empty": {},
            "other_rank": (np.zeros((5, 6)), ("embed",), spec(("data", "model"), None)),
            "scalar": (np.zeros(()), (), spec()),
        },
    }
    assert table(state_dict, tmp_path) == [
        "Variable a/x size 4 shape (4,) partition spec None",
        "Variable b size 6 shape (heads=2, kv=3) partition spec ('model', None)",
        "Total number of parameters: 10",
        "",
        "Variable none None",
        "Variable other_rank size 30 shape (5, 6) partition spec (('data', 'model'), None)",
        "Variable scalar size 1 shape () partition spec ()",
    ]


class Model:
    """A model that initializes one weight, for tests in which only the creation of the state matters."""

    module = None

    def get_initial_variables(self, rng: Any, input_shapes: Any, input_types: Any) -> Any:
        axes = flax_partitioning.AxisMetadata(names=("embed", "mlp"))
        weight = jax.random.normal(rng, (*input_shapes["x"], 4))
        return flax.core.freeze({"params": {"w": weight}, "params_axes": {"w_axes": axes}})


class FakeCheckpointer:
    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def restore(self, path: str, **kwargs: Any) -> Any:
        return types.SimpleNamespace(path=path, **kwargs, **self.settings)


def simple(model: Any, **kwargs: Any) -> utils.TrainStateInitializer:
    return utils.TrainStateInitializer(
        optimizer_def=None,
        init_fn=model.get_initial_variables,
        input_shapes={"x": (8,)},
        partitioner=partitioning.PjitPartitioner(num_partitions=1),
        **kwargs,
    )


def test_shapes_are_known_without_making_arrays() -> None:
    made = simple(Model())
    shapes = made.global_train_state_shape
    assert {type(leaf) for leaf in jax.tree.leaves(shapes)} == {jax.ShapeDtypeStruct}
    assert shapes.params["w"].shape == (8, 4)
    assert tuple(made.train_state_axes.params["w"]) == (None, "model")


def checkpoints_in(folder: Path, *steps: int) -> str:
    for step in steps:
        (folder / f"checkpoint_{step}").mkdir()
        (folder / f"checkpoint_{step}" / "checkpoint").write_text("")
    return str(folder)


def test_gaps_are_filled_from_scratch(tmp_path: Path) -> None:
    made = simple(Model())
    cfg = utils.RestoreCheckpointConfig(
        checkpoints_in(tmp_path, 5),
        fallback_to_scratch=True,
        assignment_map=[("a", None)],
        checkpointer_cls=FakeCheckpointer,
    )
    state = made.from_checkpoint([cfg], init_rng=jax.random.PRNGKey(1))
    expected = made.from_scratch(jax.random.PRNGKey(1)).params["w"]
    np.testing.assert_array_equal(state.fallback_state["target"]["w"], expected)


def test_checkpoint_or_scratch(tmp_path: Path) -> None:
    made = simple(Model())
    empty = utils.RestoreCheckpointConfig(str(tmp_path), checkpointer_cls=FakeCheckpointer)
    assert made.from_checkpoint([empty]) is None
    assert made.from_checkpoint_or_scratch([empty], init_rng=jax.random.PRNGKey(0)).params["w"].shape == (8, 4)
    checkpoints_in(tmp_path, 4)
    assert made.from_checkpoint_or_scratch([empty], init_rng=jax.random.PRNGKey(0)).path.endswith("checkpoint_4")


def test_scanned_modules_are_told_their_partitioning() -> None:
    class Module:
        scan_layers = True
        spmd_annotations = None

        def clone(self, *, parent: None, spmd_annotations: Any) -> Any:
            clone = Module()
            clone.spmd_annotations = spmd_annotations
            return clone

    model = Model()
    model.module = Module()
    made = simple(model)
    assert model.module.spmd_annotations is made.train_state_axes.params


def variables() -> Any:
    return flax.core.freeze(
        {
            "params": {
                "logits": np.zeros((2, 4)),
                "mlp": {"wo": {"kernel": np.zeros((4, 6)), "bias": np.zeros(6)}},
            },
            "params_axes": {
                "logits_axes": AxisMetadata(names=("vocab", "embed")),
                "mlp": {"wo": {"kernel_axes": AxisMetadata(names=("embed", "mlp"))}},
            },
            "cache": {"kept": np.ones(1)},
        }
    )


def axes(changed: Any) -> dict[str, Any]:
    return {name: entry.names for name, entry in utils.flatten_dict_string_keys(changed["params_axes"]).items()}


def test_first_full_match_wins_and_missing_names_are_added() -> None:
    rules = [("mlp/.*/kernel", ("a", "b")), (".*kernel", ("never", "used")), (".*bias", ("c",)), ("log", ("no", "no"))]
    changed = utils.override_params_axes_names(variables(), rules)
    assert axes(changed) == {
        "logits_axes": ("vocab", "embed"),
        "mlp/wo/kernel_axes": ("a", "b"),
        "mlp/wo/bias_axes": ("c",),
    }
    assert changed["cache"]["kept"] == 1


def test_without_rules_nothing_changes() -> None:
    assert axes(utils.override_params_axes_names(variables())) == axes(variables())


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_checkpoints_come_one_after_another(self, tmp_path: Path) -> None:
        made = simple(Model())
        path = checkpoints_in(tmp_path, 1, 12, 3)
        cfg = utils.RestoreCheckpointConfig(path, mode="all", dtype="bfloat16", checkpointer_cls=FakeCheckpointer)
        restored = list(made.from_checkpoints([cfg], ds_iter="iterator"))
        assert [p for _, p in restored] == [f"{path}/checkpoint_{step}" for step in (1, 3, 12)]
        state = restored[0][0]
        assert (state.path, state.dataset_iterator, state.restore_dtype) == (restored[0][1], None, jnp.bfloat16)
        assert state.train_state is made.global_train_state_shape
        with pytest.raises(ValueError, match="at most 1 checkpoint") as error:
            made.from_checkpoint([cfg])
        listed = ", ".join(f"{path}/checkpoint_{step}" for step in (1, 3, 12))
        assert str(error.value) == f"Expected at most 1 checkpoint to restore but found 3: {listed}."

    def test_unbound_initialisers_are_refused(self) -> None:
        with pytest.raises(AttributeError, match=r"`init_fn` must be a bound method of a model, such as"):
            utils.TrainStateInitializer(None, lambda rng, input_shapes, input_types: {}, {}, None)

    def test_wrong_rank_is_named(self) -> None:
        with pytest.raises(ValueError, match="does not match param rank") as error:
            utils.override_params_axes_names(variables(), [("logits", ("vocab",))])
        assert str(error.value) == ("Provided axis name override for logits does not match param rank (2): ('vocab',)")

    def test_variables_without_axes_are_refused(self) -> None:
        with pytest.raises(ValueError, match="do not contain a") as error:
            utils.override_params_axes_names(flax.core.freeze({"params": {}, "cache": {}}))
        assert str(error.value) == "Model variables do not contain a 'params_axes' collection to apply an override to."
        assert error.value.__notes__ == ["They contain cache, params."]
