"""Checkpoints in orbax layout are read and written as T5X does."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tensorflow as tf
from flax import traverse_util
from orbax.checkpoint.checkpoint_manager import StepAlreadyExistsError
from small_states import (
    KERNEL,
    SCALE,
    assert_same,
    assignment,
    axes,
    factoring_adafactor,
    flat,
    partitioner,
    shapes,
    state,
    variables,
)
from t5x import adafactor, checkpoints, optimizers, train_state

REFERENCE = Path(__file__).parents[1] / "reference"
RECORD = json.loads((REFERENCE / "trajectories" / "t5_1_1_infer_eval.json").read_text())


def manager(folder: Path, like: Any = None, **settings: Any) -> checkpoints.OrbaxCheckpointManagerInterface:
    folder.mkdir(exist_ok=True)
    return checkpoints.OrbaxCheckpointManagerInterface(
        str(folder), shapes(like if like is not None else state()), partitioner(), **settings
    )


def save(folder: Path, *states: Any, **settings: Any) -> None:
    writer = manager(folder, states[0], **settings)
    for each in states:
        writer.save(each)
        writer.wait_until_finished()
    writer.close()


def t5_variables() -> Any:
    """Returns the parameters of the recorded checkpoint, all zero, with axis names of the right rank."""
    params, names = {}, {}
    for path, fact in RECORD["final_state"].items():
        if path.startswith("target/"):
            *folders, leaf = path.removeprefix("target/").split("/")
            params[(*folders, leaf)] = jnp.zeros(fact["shape"])
            names[(*folders, f"{leaf}_axes")] = axes(*("embed", "mlp")[: len(fact["shape"])])
    nest = traverse_util.unflatten_dict
    return {"params": nest(params), "params_axes": nest(names)}


def test_a_checkpoint_that_t5x_wrote_restores() -> None:
    rules = adafactor.standard_logical_factor_rules()
    model = train_state.FlaxOptimTrainState.create(adafactor.Adafactor(logical_factor_rules=rules), t5_variables())
    reader = checkpoints.OrbaxCheckpointManagerInterface(str(REFERENCE), shapes(model), partitioner())
    leaves = flat(reader.restore(path=str(REFERENCE / "checkpoint_8")).state_dict())
    assert leaves.keys() == RECORD["final_state"].keys()
    for path, fact in RECORD["final_state"].items():
        assert (list(leaves[path].shape), str(leaves[path].dtype)) == (fact["shape"], fact["dtype"]), path
        values = leaves[path].astype(np.float64)
        np.testing.assert_allclose(np.abs(values).sum(), fact["abs_sum"], rtol=1e-6, err_msg=path)
        np.testing.assert_allclose(values.sum(), fact["sum"], rtol=1e-4, atol=1e-6 * fact["abs_sum"], err_msg=path)


def test_a_checkpoint_has_the_recorded_files_handlers_and_metadata(tmp_path: Path) -> None:
    save(tmp_path, state(step=8))
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    recorded = {file for file in RECORD["files"] if file.startswith("checkpoint_8")}
    assert recorded <= written
    ours, theirs = (
        json.loads((folder / "checkpoint_8" / "_CHECKPOINT_METADATA").read_text()) for folder in (tmp_path, REFERENCE)
    )
    assert ours.keys() == theirs.keys()
    assert ours["item_handlers"] == theirs["item_handlers"]
    assert ours["item_handlers"]["dataset"] == "t5x.checkpoints.DatasetCheckpointHandler"
    ours, theirs = (
        json.loads((folder / "checkpoint_8" / "state" / "_METADATA").read_text()) for folder in (tmp_path, REFERENCE)
    )
    assert {k: v for k, v in ours.items() if k != "tree_metadata"} == {
        k: v for k, v in theirs.items() if k != "tree_metadata"
    }
    leaf = ours["tree_metadata"]["('state', 'step')"]
    assert leaf == theirs["tree_metadata"]["('state', 'step')"]


@pytest.mark.parametrize(
    "optimizer",
    [factoring_adafactor(beta1=0.9), optimizers.adamw(optax.linear_schedule(1.0, 0.0, 10))],
    ids=["adafactor", "adamw"],
)
def test_what_is_saved_is_restored(tmp_path: Path, optimizer: optimizers.OptimizerDef) -> None:
    trained = state(optimizer=optimizer)
    trained = trained.apply_gradient(jax.tree.map(jnp.ones_like, trained.params), learning_rate=0.1)
    save(tmp_path, trained)
    reader = manager(tmp_path, state(optimizer=optimizer))
    restored = reader.restore(step=4)
    assert_same(restored.state_dict(), trained.state_dict())
    assert restored.params["enc"]["kernel"].sharding.spec == jax.sharding.PartitionSpec(None, "model")
    assert (reader.latest_step(), list(reader.all_steps()), str(reader.directory)) == (4, [4], str(tmp_path))


def test_inference_takes_parameters_and_step_only(tmp_path: Path) -> None:
    save(tmp_path, state())
    model = train_state.InferenceState.create(variables())
    leaves = flat(manager(tmp_path, model).restore(step=3).state_dict())
    assert leaves.keys() == {"target/enc/kernel", "target/scale", "state/step"}
    np.testing.assert_array_equal(leaves["target/enc/kernel"], KERNEL)


def test_restored_dtypes_are_those_of_t5x(tmp_path: Path) -> None:
    save(tmp_path, state())
    leaves = flat(manager(tmp_path, restore_dtype=jnp.bfloat16).restore(step=3).state_dict())
    kept = {path for path, leaf in leaves.items() if leaf.dtype != jnp.bfloat16}
    assert kept == {"state/param_states/scale/v"}  # the only leaf besides parameters that is not replicated
    low = state(dtype=jnp.bfloat16)
    save(tmp_path / "low", low, save_dtype=np.float32)  # parameters are saved unchanged
    assert manager(tmp_path / "low", low).restore(step=3).params["scale"].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [2, 4, 6, 8]),
        ({"keep": 1}, [8]),
        ({"keep": 1, "force_keep_period": 4}, [4, 8]),
        ({"keep": 1, "metric_name_to_monitor": "train/loss"}, [4]),
        ({"keep": 1, "metric_name_to_monitor": "train/loss", "metric_mode": "min"}, [2]),
        ({"keep": 2, "metric_name_to_monitor": "train/loss", "force_keep_period": 8}, [4, 6, 8]),
        ({"keep": 1, "metric_name_to_monitor": "train/accuracy"}, [2, 4, 6, 8]),
    ],
)
def test_old_checkpoints_go_by_number_period_and_metric(
    tmp_path: Path, settings: dict[str, Any], kept: list[int]
) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path / "train"))
    with writer.as_default():
        for step, loss in ((2, 1.0), (4, 9.0), (6, 3.0), (8, 2.0)):
            tf.summary.scalar("loss", loss, step)
    writer.close()
    save(tmp_path, *(state(step=step) for step in (2, 4, 6, 8)), **settings)
    assert list(checkpoints.all_steps(str(tmp_path))) == kept


def test_saves_follow_the_period_unless_forced(tmp_path: Path) -> None:
    writer = manager(tmp_path, period=4)
    assert writer.save(state(step=4), force=False)
    writer.wait_until_finished()
    assert [step for step in range(4, 13) if writer.should_save(step)] == [8, 12]
    assert not writer.save(state(step=5), force=False)
    assert writer.save(state(step=5))
    writer.wait_until_finished()
    with pytest.raises(StepAlreadyExistsError):
        writer.save(state(step=5))
    writer.close()
    assert list(checkpoints.all_steps(str(tmp_path))) == [4, 5]


@pytest.mark.embedded("T5X does not restore the iterator of this test")
def test_the_input_pipeline_goes_on_where_it_was(tmp_path: Path) -> None:
    data = iter(tf.data.Dataset.range(100))
    for _ in range(7):
        next(data)
    save(tmp_path, state(), dataset_iterator=data)
    assert {p.name for p in (tmp_path / "checkpoint_3" / "dataset").iterdir()} >= {"train_ds-000-of-001.index"}
    fresh = iter(tf.data.Dataset.range(100))
    manager(tmp_path, dataset_iterator=fresh).restore(step=3)
    assert int(next(fresh)) == 7
    save(tmp_path / "without", state())
    with pytest.raises(ValueError, match=r"no state of the input pipeline: .*train_ds-000-of-001 is missing"):
        manager(tmp_path / "without", dataset_iterator=fresh).restore(step=3)


def test_a_change_before_saving_is_saved(tmp_path: Path) -> None:
    def double(saved: Any, infos: Any) -> Any:
        assert infos["target"]["scale"].name == "target/scale"
        return {**saved, "target": jax.tree.map(lambda x: 2 * x, saved["target"])}, infos

    writer = manager(tmp_path)
    writer.save(state(), state_transformation_fns=[double])
    writer.close()
    np.testing.assert_array_equal(manager(tmp_path).restore(step=3).params["scale"], 2 * SCALE)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_missing_leaves_come_from_the_fallback_or_are_named(self, tmp_path: Path) -> None:
        save(tmp_path, state())
        model = state(layer="dec")
        reader = manager(tmp_path, model)
        with pytest.raises(
            ValueError, match=r"(?s)checkpoint_3/state lacks 5 .*target/dec/kernel .*fallback_to_scratch"
        ):
            reader.restore(step=3)
        fallback = (
            state(step=0, layer="dec").replace_params(jax.tree.map(lambda x: x * 0 + 5, model.params)).state_dict()
        )
        leaves = flat(reader.restore(step=3, fallback_state=fallback).state_dict())
        np.testing.assert_array_equal(leaves["target/dec/kernel"], np.full((8, 4), 5.0))
        np.testing.assert_array_equal(leaves["target/scale"], SCALE)
        assert leaves["state/step"] == 3

    def test_leaves_can_be_dropped_and_put_in_but_not_renamed(self, tmp_path: Path) -> None:
        save(tmp_path, state())
        fresh = state(step=0).replace_params(jax.tree.map(jnp.zeros_like, state().params)).state_dict()
        dropped = manager(tmp_path).restore(
            step=3, state_transformation_fns=[assignment(("target/scale", None))], fallback_state=fresh
        )
        np.testing.assert_array_equal(dropped.params["scale"], np.zeros(4))
        np.testing.assert_array_equal(dropped.params["enc"]["kernel"], KERNEL)

        def put_in(stored: Any, target: Any) -> Any:
            return {**stored, "target": {**stored["target"], "scale": np.full((4,), 7, np.float32)}}

        np.testing.assert_array_equal(
            manager(tmp_path).restore(step=3, state_transformation_fns=[put_in]).params["scale"], np.full(4, 7.0)
        )
        rename = assignment(("(.*)/dec/(.*)", r"\1/enc/\2"))
        with pytest.raises(ValueError, match=r"target/dec/kernel from target/enc/kernel.*T5X cannot rename"):
            manager(tmp_path, state(layer="dec")).restore(step=3, state_transformation_fns=[rename])

    def test_another_shape_is_named_with_both(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        save(tmp_path, state())
        shapes_of = rf"has shape \(8, 4\) in checkpoint {tmp_path}/checkpoint_3 and \(16, 4\) in the model"
        with pytest.raises(ValueError, match=f"target/enc/kernel {shapes_of}"):
            manager(tmp_path, state(rows=16)).restore(step=3)
        whole = state(optimizer=factoring_adafactor(factored=False))  # state of another shape is accepted, as in T5X
        restored = manager(tmp_path, whole).restore(step=3)
        assert restored.param_states["enc"]["kernel"].v.shape == (1,)
        assert "state/param_states/enc/kernel/v has shape (1,) in checkpoint" in caplog.text

    def test_a_state_with_untrained_parameters_is_refused_as_t5x_cannot_restore_it(self, tmp_path: Path) -> None:
        kernels = traverse_util.ModelParamTraversal(lambda path, _: "kernel" in path)
        partial = state(optimizer=optimizers.MultiOptimizer([(kernels, factoring_adafactor())]))
        save(tmp_path, partial)
        with pytest.raises(ValueError, match=r"keeps no state for state/param_states/scale .* T5X cannot restore"):
            manager(tmp_path, partial).restore(step=3)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, r"restore takes either step or path: step=None, path=None"),
            ({"step": 3, "path": "x"}, r"restore takes either step or path: step=3, path='x'"),
            (
                {"step": 9},
                r"{folder}/checkpoint_9 is not a checkpoint: it has no folder 'state'. Steps in {folder}: \[3\]",
            ),
            ({"path": "/absent/checkpoint_1"}, r"/absent/checkpoint_1 is not a checkpoint: .* Steps in /absent: \[\]"),
            (
                {"path": "/absent/model"},
                r"'/absent/model' is not a checkpoint folder: its name should be checkpoint_STEP",
            ),
        ],
    )
    def test_a_checkpoint_that_is_not_there_is_named(
        self, tmp_path: Path, arguments: dict[str, Any], message: str
    ) -> None:
        save(tmp_path, state())
        with pytest.raises(ValueError, match=message.format(folder=tmp_path)):
            manager(tmp_path).restore(**arguments)

    def test_a_folder_that_cannot_be_is_refused_and_not_made(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=rf"neither '{tmp_path}/a/b' nor '{tmp_path}/a' exists"):
            checkpoints.OrbaxCheckpointManagerInterface(str(tmp_path / "a" / "b"), state(), partitioner())
        assert not (tmp_path / "a").exists()

    def test_the_dataset_handler_needs_an_iterator(self, tmp_path: Path) -> None:
        handler = checkpoints.DatasetCheckpointHandler("train_ds-000-of-001", should_write_dataset_ckpt=True)
        for method in (handler.save, handler.restore):
            with pytest.raises(ValueError, match="DatasetArgs holds no iterator"):
                method(tmp_path, checkpoints.DatasetArgs())
        idle = checkpoints.DatasetCheckpointHandler("train_ds-000-of-001", should_write_dataset_ckpt=False)
        idle.save(tmp_path, checkpoints.DatasetArgs())
        assert idle.restore(tmp_path) is None
        assert list(tmp_path.iterdir()) == []
