"""The best checkpoints by a metric in TensorBoard files are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from small_states import partitioner, shapes, state
from t5x import checkpoints

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
