"""Checkpoints can be pinned and removed, and their formats are told apart."""

from __future__ import annotations

from pathlib import Path

import orbax.checkpoint as ocp
import pytest
from etils import epath
from small_states import partitioner, state
from t5x import checkpoint_utils, checkpoints
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
    for _ in range(2):  # the second time there is nothing to do
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


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
@pytest.mark.parametrize("content", [b"", b"no checkpoint at all"])
def test_another_file_is_refused_by_path(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    message = rf"{tmp_path}/checkpoint is not a checkpoint: .* begins with {content[:21]!r}"
    with pytest.raises(ValueError, match=message):
        checkpoint_utils.detect_checkpoint_type(str(tmp_path / "checkpoint"))


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
