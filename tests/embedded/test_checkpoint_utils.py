"""Checkpoints of all layouts are told apart, can be pinned, are kept for a metric, and lie on several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
import pytest
import tensorflow as tf
from etils import epath
from small_states import partitioner, shapes, state
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


LOSSES = {1: 5.0, 2: 1.0, 3: 9.0, 4: 2.0, 5: 3.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a metric for some steps."""
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
    assert found == LOSSES  # the last record is of the other tag
    file.write_bytes(file.read_bytes()[:-80])
    assert set(checkpoints.populate_metrics_for_steps(str(run), "train/loss", LOSSES)) < set(LOSSES)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"keep": None}, [1, 2, 3, 4, 5]),
        ({"keep": 2}, [1, 3, 5]),  # the best two, and the latest
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


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_another_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="metric_mode is 'best'"):
        checkpoints.SaveBestCheckpointer(shapes(state()), partitioner(), str(tmp_path), metric_mode="best")


@pytest.mark.embedded("T5X cuts chunks of the older layout otherwise")
def test_a_divided_state_is_saved_and_restored(programs: Any, tmp_path: Path) -> None:
    with programs.start(brief=False, factory="sharded_program:ShardedProgram") as run:
        found = run.call("save_and_restore", folder=str(tmp_path), timeout=240)
    assert found["devices"] == 2
    for layout in ("orbax", "legacy"):
        assert found[layout]["equal"], layout
        assert found[layout]["shards"] == [[8, 2], [8, 2]]
    assert found["legacy"]["files"] == ["0.0", "0.1"]  # each device's part is a chunk of its own
