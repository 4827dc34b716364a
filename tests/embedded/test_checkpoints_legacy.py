"""Checkpoints in T5X's own layout, which public models have, are read and written as T5X does."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import tensorstore as ts
from flax import serialization, traverse_util
from small_states import KERNEL, SCALE, assert_same, assignment, factoring_adafactor, flat, partitioner, shapes, state
from t5x import checkpoint_importer, checkpoint_utils, checkpoints, optimizers, partitioning, state_utils

# T5X wrote this at step 3: the state of small_states, except that the moments are zero.
RECORDED = Path(__file__).parent / "t5x_legacy_checkpoints"
ORBAX = Path(__file__).parents[1] / "reference" / "checkpoint_8"


def checkpointer(folder: Path, like: Any = None, on_devices: bool = True, **settings: Any) -> checkpoints.Checkpointer:
    model = shapes(like if like is not None else state())
    return checkpoints.Checkpointer(model, partitioner(params_on_devices=on_devices), str(folder), **settings)


def test_a_checkpoint_that_t5x_wrote_restores() -> None:
    reader = checkpointer(RECORDED)
    assert (list(reader.all_steps()), reader.latest_step()) == ([3], 3)
    restored = reader.restore()
    assert_same(restored.state_dict(), state().state_dict())
    assert restored.params["enc"]["kernel"].sharding.spec == jax.sharding.PartitionSpec(None, "model")


def test_orbax_manager_restores_it_too() -> None:
    manager = checkpoints.OrbaxCheckpointManagerInterface(str(RECORDED), shapes(state()), partitioner())
    for arguments in ({"step": 3}, {"path": str(RECORDED / "checkpoint_3")}):
        assert_same(manager.restore(**arguments).state_dict(), state().state_dict())


def test_it_loads_without_a_model() -> None:
    places = (RECORDED, RECORDED / "checkpoint_3", RECORDED / "checkpoint_3" / "checkpoint")
    for place in places:
        assert_same(checkpoints.load_t5x_checkpoint(str(place)), state().state_dict())
        assert checkpoints.find_checkpoint(str(place)) == str(places[2])
    low = flat(checkpoints.load_t5x_checkpoint(str(RECORDED), restore_dtype=jnp.bfloat16))
    assert {leaf.dtype for leaf in low.values()} == {jnp.dtype(jnp.bfloat16)}


def test_what_is_written_has_the_recorded_files_and_specs(tmp_path: Path) -> None:
    checkpointer(tmp_path).save(state())
    files = [{str(p.relative_to(f)) for p in f.rglob("*")} for f in (tmp_path, RECORDED)]
    assert files[0] == files[1]
    ours, theirs = (
        serialization.msgpack_restore((folder / "checkpoint_3" / "checkpoint").read_bytes())
        for folder in (tmp_path, RECORDED)
    )
    assert ours["version"] == theirs["version"] == 3
    ours, theirs = (state_utils.flatten_state_dict(tree["optimizer"]) for tree in (ours, theirs))
    assert ours.keys() == theirs.keys()
    for name, leaf in theirs.items():
        if not isinstance(leaf, dict):
            np.testing.assert_array_equal(ours[name], leaf)
            continue
        # The writer chooses the chunks and compression of an array; readers look into the array's metadata.
        shapes_of = [each.pop("metadata")["shape"] for each in (ours[name], leaf)]
        assert shapes_of[0] == shapes_of[1]
        assert ours[name] == leaf
        folders = [folder / "checkpoint_3" / name.replace("/", ".") for folder in (tmp_path, RECORDED)]
        stored = [json.loads((folder / ".zarray").read_text()) for folder in folders]
        for metadata in stored:
            del metadata["chunks"]
        assert stored[0] == stored[1]


def test_parameters_are_cast_and_the_rest_is_not(tmp_path: Path) -> None:
    checkpointer(tmp_path, save_dtype=jnp.bfloat16).save(state())
    spec = json.loads((tmp_path / "checkpoint_3" / "target.scale" / ".zarray").read_text())
    assert spec["dtype"] == "bfloat16"
    for restore_dtype, parameters in ((None, jnp.bfloat16), (np.float32, np.float32)):
        leaves = flat(checkpointer(tmp_path, restore_dtype=restore_dtype).restore().state_dict())
        for path, leaf in leaves.items():
            wanted = parameters if path.startswith("target/") else np.int32 if path == "state/step" else np.float32
            assert leaf.dtype == wanted, path
        np.testing.assert_allclose(leaves["target/scale"].astype(np.float32), SCALE, rtol=1e-2)


def test_parameters_may_be_read_when_asked_for(tmp_path: Path) -> None:
    checkpointer(tmp_path).save(state())
    lazy = checkpointer(tmp_path, on_devices=False, restore_dtype=jnp.bfloat16).restore(lazy_parameters=True)
    kernel = lazy.params["enc"]["kernel"]
    assert isinstance(kernel, checkpoint_importer.LazyArray)
    assert (kernel.shape, kernel.dtype, kernel.nbytes) == ((8, 4), jnp.bfloat16, 64)
    assert kernel.get().dtype == jnp.bfloat16
    np.testing.assert_array_equal(kernel.astype(np.float32).get(), KERNEL.astype(jnp.bfloat16).astype(np.float32))
    checkpointer(tmp_path / "copy", on_devices=False).save(lazy)  # each array is read when it is written
    copied = checkpointer(tmp_path / "copy", on_devices=False).restore()
    assert isinstance(copied.params["scale"], np.ndarray)
    with pytest.raises(ValueError, match="params_on_devices=False"):
        checkpointer(tmp_path).restore(lazy_parameters=True)


def test_untrained_parameters_have_no_state(tmp_path: Path) -> None:
    kernels = traverse_util.ModelParamTraversal(lambda path, _: "kernel" in path)
    partial = state(optimizer=optimizers.MultiOptimizer([(kernels, factoring_adafactor())]))
    checkpointer(tmp_path, partial).save(partial)
    assert checkpointer(tmp_path, partial).restore().param_states["scale"] is None
    assert checkpoints.load_t5x_checkpoint(str(tmp_path))["state"]["param_states"]["scale"] is None


def test_optax_states_are_kept(tmp_path: Path) -> None:
    adam = state(optimizer=optimizers.adamw(0.1))
    adam = adam.apply_gradient(jax.tree.map(jnp.ones_like, adam.params), learning_rate=0.1)
    checkpointer(tmp_path, adam).save(adam)
    assert_same(
        checkpointer(tmp_path, state(optimizer=optimizers.adamw(0.1))).restore().state_dict(), adam.state_dict()
    )


def test_leaves_can_be_renamed_dropped_and_filled_in() -> None:
    model = state(layer="dec")
    rename = assignment(("(.*)/dec/(.*)", r"\1/enc/\2"))
    restored = checkpointer(RECORDED, model).restore(state_transformation_fns=[rename])
    np.testing.assert_array_equal(restored.params["dec"]["kernel"], KERNEL)
    fresh = state(step=0).replace_params(jax.tree.map(jnp.zeros_like, state().params)).state_dict()
    drop = assignment(("target/scale", None))
    dropped = checkpointer(RECORDED).restore(state_transformation_fns=[drop], fallback_state=fresh)
    np.testing.assert_array_equal(dropped.params["scale"], np.zeros(4))
    np.testing.assert_array_equal(dropped.params["enc"]["kernel"], KERNEL)
    loaded = checkpoints.load_t5x_checkpoint(
        str(RECORDED), state_transformation_fns=[lambda stored, _: {"target": stored["target"]}]
    )
    assert flat(loaded).keys() == {"target/enc/kernel", "target/scale"}


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    writer = checkpointer(tmp_path)
    writer.save(state())
    writer.save(state().replace_params(jax.tree.map(jnp.zeros_like, state().params)))
    np.testing.assert_array_equal(writer.restore().params["scale"], SCALE)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint_3"]


def test_the_oldest_go_unless_pinned(tmp_path: Path) -> None:
    writer = checkpointer(tmp_path, keep=2)
    for step in range(1, 5):
        writer.save(state(step=step))
        if step == 1:
            checkpoint_utils.pin_checkpoint(str(tmp_path / "checkpoint_1"))
    assert list(checkpoints.all_steps(str(tmp_path))) == [1, 3, 4]


@pytest.mark.embedded("T5X does not restore the iterator of this test")
def test_the_input_pipeline_goes_on_where_it_was(tmp_path: Path) -> None:
    data = iter(tf.data.Dataset.range(100))
    writer = checkpointer(tmp_path, dataset_iterator=data, keep_dataset_checkpoints=1)
    for step in (1, 2):
        next(data)
        writer.save(state(step=step))
    assert list(writer.all_dataset_checkpoint_steps()) == [2]
    fresh = iter(tf.data.Dataset.range(100))
    checkpointer(tmp_path, dataset_iterator=fresh).restore()
    assert int(next(fresh)) == 2
    with pytest.raises(ValueError, match=r"no state of the input pipeline: .*checkpoint_1/train_ds-000-of-001 is"):
        checkpointer(tmp_path, dataset_iterator=fresh).restore(step=1)


def test_a_copy_in_another_place_and_storage_restores(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "checkpoint_3"
    shutil.copytree(RECORDED / "checkpoint_3", copy)
    tree = serialization.msgpack_restore((copy / "checkpoint").read_bytes())
    # One spec as T5X writes it to a bucket, and one with its path as before tensorstore 0.1.14.
    kernel, scale = tree["optimizer"]["target"]["enc"]["kernel"], tree["optimizer"]["target"]["scale"]
    kernel["kvstore"] = {"driver": "gcs", "bucket": "t5x-dummy-bucket", "path": "target.enc.kernel/"}
    scale["path"] = scale["kvstore"].pop("path")
    scale["kvstore"]["driver"] = "gfile"
    (copy / "checkpoint").write_bytes(serialization.msgpack_serialize(tree))
    assert_same(checkpointer(copy.parent).restore().state_dict(), state().state_dict())


def test_in_a_bucket_specs_name_no_bucket() -> None:
    writer = checkpoints.Checkpointer(shapes(state()), partitioner(), "gs://models/run")
    stored = writer._parameter_infos["target"]["scale"].ts_spec.to_json()
    assert stored["kvstore"] == {"driver": "gcs", "bucket": "t5x-dummy-bucket", "path": "target.scale/"}


def damaged(folder: Path, damage: str) -> None:
    file = folder / "checkpoint_3" / "checkpoint"
    shutil.copytree(RECORDED / "checkpoint_3", folder / "checkpoint_3")
    tree = serialization.msgpack_restore(file.read_bytes())
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
        return
    if damage == "old":
        tree["version"] = 1
    if damage == "uint16":
        tree["optimizer"]["target"]["scale"]["dtype"] = "uint16"
    if damage == "other storage":
        tree["optimizer"]["target"]["scale"]["kvstore"]["driver"] = "s3"
    if damage == "lost array":
        shutil.rmtree(folder / "checkpoint_3" / "target.scale")
    file.write_bytes(serialization.msgpack_serialize(tree))


@pytest.mark.embedded("it is about the text of an error")
def test_scripts_that_convert_for_transformers_read_this_layout_alone(tmp_path: Path) -> None:
    """The scripts of transformers read ``load_t5x_checkpoint(path)["target"]["encoder"]["layers_0"]…`` in this way."""
    target = checkpoints.load_t5x_checkpoint(str(RECORDED / "checkpoint_3"))["target"]
    np.testing.assert_array_equal(target["enc"]["kernel"], KERNEL)
    assert isinstance(target["enc"]["kernel"], np.ndarray)
    convert = f"t5x-harness convert {ORBAX} --to transformers --output FOLDER makes a model of transformers of it"
    with pytest.raises(ValueError, match=re.escape(f"which OrbaxCheckpointManagerInterface restores; {convert}")):
        checkpoints.load_t5x_checkpoint(str(ORBAX))


def test_stored_arrays_describe_themselves() -> None:
    spec = ts.Spec({"driver": "zarr", "kvstore": {"driver": "memory"}, "metadata": {"shape": [2, 3], "chunks": [2, 3]}})
    info = checkpoints.fake_param_info(spec)
    assert (info.shape, info.ts_spec) == ((2, 3), spec)
    assert info.local_chunk_info == partitioning.LocalChunkInfo(slice=(slice(None, None),), replica_id=0)
    assert checkpoints.fake_param_info(None) is None
    assert checkpoints.fake_param_info(np.ones(2)).ts_spec is None


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_what_cannot_be_is_refused(self) -> None:
        with pytest.raises(
            ValueError, match=r"lacks 5 of the model's leaves:\n  target/dec/kernel \(it has target/enc/kernel\)"
        ):
            checkpointer(RECORDED, state(layer="dec")).restore()
        with pytest.raises(
            ValueError,
            match=rf"target/enc/kernel has shape \(8, 4\) in checkpoint {RECORDED}/checkpoint_3 and \(16, 4\)",
        ):
            checkpointer(RECORDED, state(rows=16)).restore()

    def test_a_pipeline_with_state_names_the_fix(self, tmp_path: Path) -> None:
        stateful = tf.data.Dataset.from_generator(lambda: iter(range(5)), output_signature=tf.TensorSpec((), tf.int32))
        with pytest.raises(tf.errors.FailedPreconditionError) as refusal:
            checkpointer(tmp_path, dataset_iterator=iter(stateful)).save(state())
        assert "SaveCheckpointConfig.save_dataset = False" in refusal.value.__notes__[0]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"step": 3, "path": "x"}, "restore takes step or path, not both: step=3, path='x'"),
            ({"step": 9}, r"checkpoint_9 does not exist \(checkpoints beside it: \[3\]\)"),
            ({"path": "/absent/model"}, "/absent/model does not exist"),
            (
                {"path": str(Path(__file__).parents[1] / "reference" / "checkpoint_8")},
                "checkpoint_8 is a checkpoint in orbax layout",
            ),
            ({"path": str(RECORDED)}, r"holds \['checkpoint_3'\]"),
        ],
    )
    def test_a_checkpoint_that_is_not_there_is_named(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            checkpointer(RECORDED).restore(**arguments)

    def test_an_empty_folder_has_no_checkpoint(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=rf"No checkpoint after step 0 in '{tmp_path}'; steps there: \[\]"):
            checkpointer(tmp_path).restore()
        with pytest.raises(ValueError, match=rf"{tmp_path}/checkpoint is not the file of a T5X checkpoint"):
            checkpoints.load_t5x_checkpoint(str(tmp_path))

    def test_folders_of_checkpoints_are_told_by_name(self, tmp_path: Path) -> None:
        for name in ("checkpoint_2", "checkpoint_10", "checkpoint_7.tmp-123", "checkpoint_x", "other_3"):
            (tmp_path / name).mkdir()
        assert list(checkpoints.all_steps(str(tmp_path))) == [2, 10]
        assert checkpoints.get_checkpoint_dir(str(tmp_path), 5) == str(tmp_path / "checkpoint_5")
        assert checkpoints.get_checkpoint_dir("d", 5, step_format_fixed_length=4) == "d/checkpoint_0005"
        assert checkpoints.get_step_from_checkpoint_dir("d/checkpoint_0005/") == ("d", 5)
        with pytest.raises(ValueError, match="'d/checkpoint' is not a checkpoint folder"):
            checkpoints.get_step_from_checkpoint_dir("d/checkpoint")

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            ("cut", "checkpoint_3/checkpoint is damaged: it cannot be read as msgpack"),
            ("old", "checkpoint_3/checkpoint is of version 1; T5X reads version 2 and later"),
            ("uint16", "target/scale in checkpoint .*checkpoint_3 holds bfloat16 as uint16"),
            (
                "other storage",
                "Cannot read target/scale of checkpoint .*checkpoint_3: the stored spec is of another storage than "
                "files and gs://: .*'driver': 's3'",
            ),
            ("lost array", "Cannot read target/scale of checkpoint .*checkpoint_3: "),
        ],
    )
    def test_damage_is_named(self, tmp_path: Path, damage: str, message: str) -> None:
        damaged(tmp_path, damage)
        with pytest.raises(ValueError, match=message):
            checkpointer(tmp_path).restore()
