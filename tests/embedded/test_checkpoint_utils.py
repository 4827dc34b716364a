"""Checkpoint layouts are recognized, pinned, kept by a metric, divided over devices, and read from TensorFlow."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorflow as tf
from etils import epath
from flax import traverse_util
from small_states import flat, partitioner, shapes, state
from t5x import adafactor, checkpoint_importer, checkpoint_utils, checkpoints
from t5x.checkpoint_utils import CheckpointTypes

REFERENCE = Path(__file__).parents[1] / "reference"
LEGACY = Path(__file__).parent / "t5x_legacy_checkpoints" / "checkpoint_3"


def test_a_pinned_checkpoint_stays(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint_1"
    folder.mkdir()
    (folder / "train_ds-000-of-001.index").touch()
    checkpoint_utils.pin_checkpoint(str(folder), "best so far")
    assert checkpoint_utils.is_pinned_checkpoint(str(folder))
    assert Path(checkpoint_utils.pinned_checkpoint_filepath(str(folder))).read_text() == "best so far"
    checkpoint_utils.remove_dataset_checkpoint(str(folder), "train_ds")
    checkpoint_utils.remove_checkpoint_dir(str(folder))
    assert sorted(p.name for p in folder.iterdir()) == ["PINNED", "train_ds-000-of-001.index"]


def test_a_checkpoint_that_is_not_pinned_goes(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint_1"
    folder.mkdir()
    for name in ("train_ds-000-of-001.index", "checkpoint"):
        (folder / name).touch()
    checkpoint_utils.pin_checkpoint(str(folder))
    for _ in range(2):  # the second call has nothing to do
        checkpoint_utils.unpin_checkpoint(str(folder))
    checkpoint_utils.remove_dataset_checkpoint(str(folder), "train_ds")
    assert [p.name for p in folder.iterdir()] == ["checkpoint"]
    checkpoint_utils.remove_checkpoint_dir(str(folder))
    assert not folder.exists()


@pytest.mark.embedded("T5X words its warning otherwise")
def test_formats_are_told_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensorflow = tmp_path / "checkpoint"
    tensorflow.write_text('model_checkpoint_path: "model.ckpt-1"\n')
    found = {
        REFERENCE / "checkpoint_8" / "state" / "checkpoint": CheckpointTypes.ORBAX,
        LEGACY / "checkpoint": CheckpointTypes.T5X,
        tensorflow: CheckpointTypes.T5X_TF,
    }
    for path, kind in found.items():
        assert checkpoint_utils.detect_checkpoint_type(str(path), expected=kind) is kind
    assert not caplog.records
    checkpoint_utils.detect_checkpoint_type(str(tensorflow), expected=CheckpointTypes.T5X)
    assert "expected the format CheckpointTypes.T5X, found CheckpointTypes.T5X_TF" in caplog.text


def test_restore_parameters_say_where_each_leaf_lies(tmp_path: Path) -> None:
    manager = checkpoints.OrbaxCheckpointManagerInterface(str(tmp_path), state(), partitioner())
    manager.save(state())
    manager.close()
    folder = epath.Path(tmp_path / "checkpoint_3" / "state")
    stored = ocp.metadata.tree.ValueMetadataEntry(value_type="jax.Array", skip_deserialize=False)
    infos = checkpoint_utils.get_restore_parameters(folder, {"a": {"b": stored}, "plain": 5, "empty": {}})
    assert infos["a"]["b"].name == "a.b"
    assert infos["a"]["b"].parent_dir == folder
    assert infos["a"]["b"].is_ocdbt_checkpoint
    assert (infos["a"]["b"].skip_deserialize, infos["plain"].skip_deserialize) == (False, True)
    assert infos["empty"] == {}


LOSSES = {1: 5.0, 2: 1.0, 3: 9.0, 4: 2.0, 5: 3.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Makes the folder of a run with metrics for some steps."""
    for folder, tag, values in (
        ("train", "loss", LOSSES),
        ("inference_eval/task", "eval/accuracy", {2: 0.25, 4: 0.5}),
    ):
        writer = tf.summary.create_file_writer(str(tmp_path / folder))
        with writer.as_default():
            for step, value in values.items():
                tf.summary.scalar(tag, value, step)
                tf.summary.scalar("other", 100.0, step)
        writer.close()
    return tmp_path


def test_a_metric_is_found_by_run_and_tag(run: Path) -> None:
    def find(metric: str, steps: Any) -> dict[int, float]:
        return dict(checkpoints.populate_metrics_for_steps(str(run), metric, steps))

    assert find("train/loss", [1, 3, 99]) == {1: 5.0, 3: 9.0}
    assert find("inference_eval/task/eval/accuracy", range(9)) == {2: 0.25, 4: 0.5}
    assert find("train/accuracy", [1]) == {}
    assert find("eval/loss", [1]) == {}


def test_a_record_that_is_being_written_ends_the_file(run: Path) -> None:
    (file,) = (run / "train").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    found = checkpoints.populate_metrics_for_steps(str(run), "train/loss", LOSSES)
    assert found == LOSSES  # the last record has the other tag
    file.write_bytes(file.read_bytes()[:-80])
    assert set(checkpoints.populate_metrics_for_steps(str(run), "train/loss", LOSSES)) < set(LOSSES)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"keep": None}, [1, 2, 3, 4, 5]),
        ({"keep": 2}, [1, 3, 5]),  # the best two and the latest
        ({"keep": 2, "metric_mode": "min"}, [2, 4, 5]),
        ({"keep": 1, "force_keep_period": 2}, [2, 3, 4, 5]),
        ({"keep": 1, "metric_name_to_monitor": "train/nothing"}, [1, 2, 3, 4, 5]),
        ({"keep": 1, "metric_name_to_monitor": "train/nothing", "keep_checkpoints_without_metrics": False}, [4, 5]),
        ({"keep": 1, "metric_name_to_monitor": "inference_eval/task/eval/accuracy"}, [1, 3, 4, 5]),
    ],
)
def test_the_best_stay_with_the_latest(run: Path, settings: dict[str, Any], kept: list[int]) -> None:
    writer = checkpoints.SaveBestCheckpointer(
        shapes(state()), partitioner(), str(run), **{"metric_name_to_monitor": "train/loss", **settings}
    )
    for step in LOSSES:
        writer.save(state(step=step))
    assert list(writer.all_steps()) == kept


@pytest.mark.embedded("T5X cuts chunks of the older layout otherwise")
def test_a_divided_state_is_saved_and_restored(programs: Any, tmp_path: Path) -> None:
    with programs.start(brief=False) as run:
        found = run.call("save_and_restore", folder=str(tmp_path), timeout=240)
    assert found["devices"] == 2
    for layout in ("orbax", "legacy"):
        assert found[layout]["equal"], layout
        assert found[layout]["shards"] == [[8, 2], [8, 2]]
    assert found["legacy"]["files"] == ["0.0", "0.1"]  # the part of each device is a separate chunk


KERNEL, EMBEDDING, NORM, BIAS = (8, 6), (16, 8), (8,), (2, 4)
# The name in TensorFlow, the shape, and the name in T5X.
PARAMETERS = [
    ("shared/embedding", EMBEDDING, "token_embedder/embedding"),
    (
        "encoder/block_000/layer_000/SelfAttention/relative_attention_bias",
        BIAS,
        "encoder/relpos_bias/rel_embedding",
    ),
    ("encoder/block_001/layer_000/SelfAttention/q", KERNEL, "encoder/layers_1/attention/query/kernel"),
    ("encoder/block_001/layer_000/rms_norm/scale", NORM, "encoder/layers_1/pre_attention_layer_norm/scale"),
    ("encoder/block_001/layer_001/DenseReluDense/wi_0/kernel", KERNEL, "encoder/layers_1/mlp/wi_0/kernel"),
    ("encoder/block_001/layer_001/layer_norm/scale", NORM, "encoder/layers_1/pre_mlp_layer_norm/scale"),
    ("encoder/final_layer_norm/scale", NORM, "encoder/encoder_norm/scale"),
    ("decoder/block_010/layer_000/SelfAttention/o", KERNEL, "decoder/layers_10/self_attention/out/kernel"),
    ("decoder/block_010/layer_001/EncDecAttention/k", KERNEL, "decoder/layers_10/encoder_decoder_attention/key/kernel"),
    ("decoder/block_010/layer_001/rms_norm/scale", NORM, "decoder/layers_10/pre_cross_attention_layer_norm/scale"),
    ("decoder/block_010/layer_002/DenseReluDense/wo/kernel", KERNEL, "decoder/layers_10/mlp/wo/kernel"),
    ("decoder/rms_norm/scale", NORM, "decoder/decoder_norm/scale"),
    ("decoder/logits/kernel", KERNEL, "decoder/logits_dense/kernel"),
]


LARGER = SimpleNamespace(shape=(9,))


def write(folder: Path, variables: dict[str, np.ndarray]) -> str:
    """Writes a TensorFlow checkpoint without a graph."""
    prefix = str(folder / "model.ckpt-1000")
    names = list(variables)
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=list(variables.values())
    )
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1000"\n')
    return prefix


@pytest.fixture
def converted() -> Any:
    """Returns TensorFlow's variables and the T5X state that they correspond to."""
    random = np.random.RandomState(0)
    variables: dict[str, np.ndarray] = {"global_step": np.array(1000, np.int64)}
    expected: dict[str, np.ndarray] = {"state/step": np.array(1000, np.int32)}
    unused = np.zeros((1,), np.float32)
    for name, shape, new_name in PARAMETERS:
        variables[name] = expected[f"target/{new_name}"] = random.rand(*shape).astype(np.float32)
        moments = f"state/param_states/{new_name}"
        expected[f"{moments}/m"] = unused
        if shape in (KERNEL, EMBEDDING):
            row, column = random.rand(shape[0]).astype(np.float32), random.rand(shape[1]).astype(np.float32)
            variables |= {f"{name}_slot_vr": row, f"{name}_slot_vc": column}
            expected |= {f"{moments}/v_row": row, f"{moments}/v_col": column, f"{moments}/v": unused}
        else:
            variables[f"{name}_slot_v"] = expected[f"{moments}/v"] = random.rand(*shape).astype(np.float32)
            expected |= {f"{moments}/v_row": unused, f"{moments}/v_col": unused}
    return variables, expected


def nested(leaves: dict[str, np.ndarray]) -> dict[str, Any]:
    return traverse_util.unflatten_dict(leaves, sep="/")


def test_every_variable_gets_its_place(tmp_path: Path, converted: Any) -> None:
    variables, expected = converted
    prefix = write(tmp_path, variables)
    for path in (tmp_path, prefix):
        leaves = flat(checkpoint_importer.restore_from_t5_checkpoint(nested(expected), path))
        assert leaves.keys() == expected.keys()
        for name, value in expected.items():
            assert leaves[name].dtype == value.dtype
            np.testing.assert_array_equal(leaves[name], value, err_msg=name)


def test_biases_of_every_layer_stay_in_their_layers(tmp_path: Path) -> None:
    name = "decoder/block_{:03}/layer_000/SelfAttention/relative_attention_bias"
    prefix = write(tmp_path, {name.format(i): np.full(BIAS, i, np.float32) for i in range(2)})
    model = {
        "target": {"decoder": {f"layers_{i}": {"relpos_bias": {"rel_embedding": np.zeros(BIAS)}} for i in range(2)}}
    }
    leaves = flat(checkpoint_importer.restore_from_t5_checkpoint(model, prefix, strict=False))
    np.testing.assert_array_equal(leaves["target/decoder/layers_1/relpos_bias/rel_embedding"], np.ones(BIAS))


def own_translator() -> checkpoint_importer.CheckpointTranslator:
    translator = checkpoint_importer.CheckpointTranslator()

    @translator.add(r"(\w+)/weights")
    def _(opts: Any, name: str, value: Any, layer: str) -> Any:
        return f"target/{layer}/kernel", value

    @translator.add(r"scale|global_step")
    def _(opts: Any, name: str, value: Any) -> Any:
        return {"scale": "target/scale", "global_step": "state/step"}[name], value

    translator.add("junk.*")(lambda opts, name, value: (None, None))
    return translator


def test_own_rules_translate_other_models(tmp_path: Path) -> None:
    model = state(step=0, optimizer=adafactor.Adafactor(factored=False))
    leaves = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in flat(model.state_dict()).items()}
    translator = own_translator()
    for name in leaves:
        if name.startswith("state/param_states"):
            translator.add(name)(lambda opts, name, value: (name, value))
    moments = {name: leaf for name, leaf in leaves.items() if name.startswith("state/param_states")}
    parameters = {"enc/weights": np.ones((8, 4), np.float32), "scale": np.ones(4, np.float32), "junk/x": np.ones(1)}
    prefix = write(tmp_path, {**parameters, "global_step": np.array(7, np.int32), **moments})
    (tmp_path / "run").mkdir()
    legacy = checkpoints.Checkpointer(shapes(model), partitioner(), str(tmp_path / "run"), restore_dtype=np.float32)
    orbax = checkpoints.OrbaxCheckpointManagerInterface(str(tmp_path / "run"), shapes(model), partitioner())
    for reader in (legacy, orbax):
        restored = reader.restore_from_tf_checkpoint(prefix, translator=translator)
        np.testing.assert_array_equal(restored.params["enc"]["kernel"], np.ones((8, 4)))
        assert int(restored.step) == 7
    legacy.convert_from_tf_checkpoint(prefix, translator=translator)
    np.testing.assert_array_equal(legacy.restore(step=7).params["scale"], np.ones(4))


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    @pytest.mark.parametrize("content", [b"", b"no checkpoint at all"])
    def test_another_file_is_refused_by_path(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "checkpoint").write_bytes(content)
        message = rf"{tmp_path}/checkpoint is not a checkpoint: .* begins with {content[:21]!r}"
        with pytest.raises(ValueError, match=message):
            checkpoint_utils.detect_checkpoint_type(str(tmp_path / "checkpoint"))

    def test_another_mode_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="metric_mode is 'best'"):
            checkpoints.SaveBestCheckpointer(shapes(state()), partitioner(), str(tmp_path), metric_mode="best")

    def test_variables_that_the_model_lacks_are_refused_unless_allowed(self, tmp_path: Path, converted: Any) -> None:
        variables, expected = converted
        write(tmp_path, variables)
        inference = {name: leaf for name, leaf in expected.items() if name.startswith(("target", "state/step"))}
        with pytest.raises(ValueError, match=r"leaves that the model has not: state/param_states/.*strict=False"):
            checkpoint_importer.restore_from_t5_checkpoint(nested(inference), tmp_path)
        leaves = checkpoint_importer.restore_from_t5_checkpoint(nested(inference), tmp_path, strict=False)
        assert flat(leaves).keys() == inference.keys()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"target/encoder/encoder_norm/scale": LARGER}, r"encoder_norm/scale has shape \(8,\) in .* and \(9,\) in"),
            ({"target/extra/kernel": LARGER}, "lacks 1 leaves of the model: target/extra/kernel"),
        ],
    )
    def test_a_model_of_another_size_is_refused_by_name(
        self, tmp_path: Path, converted: Any, change: Any, message: str
    ) -> None:
        variables, expected = converted
        write(tmp_path, variables)
        with pytest.raises(ValueError, match=message):
            checkpoint_importer.restore_from_t5_checkpoint(nested(expected | change), tmp_path)

    def test_unknown_variables_are_named(self, tmp_path: Path) -> None:
        write(tmp_path, {"encoder/novelty": np.ones(2, np.float32)})
        with pytest.raises(ValueError, match="No translation is known for 1 variables: encoder/novelty"):
            checkpoint_importer.restore_from_t5_checkpoint({}, tmp_path)

    def test_a_folder_without_checkpoint_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=f"{tmp_path} is not a TensorFlow checkpoint"):
            checkpoint_importer.load_tf_ckpt(tmp_path)
