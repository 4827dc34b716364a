"""Scalars are read from event files as TensorFlow reads them, even from files that are still growing."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t5x_harness.buckets.folders import Folder
from t5x_harness.vertex.metrics import MetricsError, RunMetrics, read_metrics, scalars_of

event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")


def _write(folder: Path, *values: tuple[str, int, Any]) -> Path:
    """Writes an event file; values that are not numbers are written as tensors."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    writer = EventFileWriter(str(folder))
    for tag, step, value in values:
        number = (
            {"simple_value": value} if isinstance(value, float) else {"tensor": tensor_util.make_tensor_proto(value)}
        )
        summary = Summary(value=[Summary.Value(tag=tag, **number)])
        writer.add_event(event_pb2.Event(step=step, summary=summary))
    writer.close()
    (file,) = folder.iterdir()
    return file


def test_scalars_that_are_tensors_are_read_too(tmp_path: Path) -> None:
    file = _write(tmp_path, ("loss", 7, np.array(0.25)), ("text", 7, "config"), ("row", 7, [1.0, 2.0]))
    assert list(scalars_of(file.read_bytes())) == [("loss", 7, 0.25)]


@pytest.mark.parametrize("missing", [1, 4, 20, 30])
def test_a_file_that_ends_within_a_record_is_read_up_to_that(tmp_path: Path, missing: int) -> None:
    file = _write(tmp_path, ("loss", 1, 2.5), ("loss", 2, 1.5))
    assert list(scalars_of(file.read_bytes()[:-missing])) == [("loss", 1, 2.5)]


class _Buckets(Folder):
    """Files on this machine in place of a bucket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, below: str = "") -> Iterator[tuple[str, int]]:
        for path in sorted(p for p in self._folder.rglob("*") if p.is_file()):
            if (name := path.relative_to(self._folder).as_posix()).startswith(below):
                yield name, path.stat().st_size

    def read(self, name: str) -> bytes | None:
        return (self._folder / name).read_bytes()


@pytest.fixture
def metrics(tmp_path: Path) -> RunMetrics:
    _write(tmp_path / "train", ("loss", 1, 2.5), ("loss", 2, 1.5))
    _write(tmp_path / "inference_eval" / "my_task", ("bleu", 1, 30.0), ("bleu", 2, 20.0), ("bleu", 3, 30.0))
    (tmp_path / "config.gin").write_text("")
    return read_metrics(_Buckets(tmp_path))


def test_metrics_are_named_by_their_folders(metrics: RunMetrics) -> None:
    assert metrics.values == {
        "train/loss": {1: 2.5, 2: 1.5},
        "inference_eval/my_task/bleu": {1: 30.0, 2: 20.0, 3: 30.0},
    }
    assert metrics.last("train/loss") == 1.5
    with pytest.raises(KeyError, match="there are inference_eval/my_task/bleu, train/loss"):
        metrics.last("train/lost")


def test_the_summary_has_last_values_and_the_largest_of_the_tasks_own(metrics: RunMetrics) -> None:
    assert metrics.summary() == {
        "train/loss": 1.5,
        "inference_eval/my_task/bleu": 30.0,
        "inference_eval/my_task/bleu/max": 30.0,
        "inference_eval/my_task/bleu/max_step": 1,
    }


def test_a_table_has_a_row_for_each_step(metrics: RunMetrics) -> None:
    pytest.importorskip("pandas")
    table = metrics.frame()
    assert list(table.columns) == ["inference_eval/my_task/bleu", "train/loss"]
    assert list(table.index) == [1, 2, 3]
    assert math.isnan(table.loc[3, "train/loss"])
    assert list(metrics.frame("train/").columns) == ["train/loss"]


def test_a_table_without_pandas_is_asked_for_in_vain(metrics: RunMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MetricsError, match="a table of metrics needs pandas, not installed here: pip install pandas"):
        metrics.frame()
