"""Metrics of past steps, read back from TensorBoard files to tell which checkpoints are the best."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf
from t5x._shown_as import shown_as

_EVENT_FILES = "*tfevents*"


@shown_as("t5x.checkpoints")
def populate_metrics_for_steps(checkpoints_dir: str, metric_name: str, steps: Iterable[int]) -> Mapping[int, float]:
    """Returns a metric's value at each of the steps that have one.

    Args:
        checkpoints_dir: folder of the run, with TensorBoard's folders in it.
        metric_name: ``run/tag``, where the run is a folder, such as ``train/accuracy`` or
            ``inference_eval/glue_cola_v002/eval/accuracy``. The shortest run that has event files counts.
        steps: the steps to look for.
    """
    wanted = set(steps)
    parts = metric_name.split("/")
    for length in range(1, len(parts)):
        files = sorted(tf.io.gfile.glob(os.path.join(checkpoints_dir, *parts[:length], _EVENT_FILES)))
        if files:
            tag = "/".join(parts[length:])
            return {step: value for file in files for step, value in _scalars(file, tag) if step in wanted}
    return {}


def _scalars(file: str, tag: str) -> Iterator[tuple[int, float]]:
    records = iter(tf.data.TFRecordDataset(file).as_numpy_iterator())
    while True:
        try:
            record = next(records, None)
        except tf.errors.DataLossError:  # the writer is in the middle of a record
            return
        if record is None:
            return
        event = tf.compat.v1.Event.FromString(record)
        for value in event.summary.value[:1]:  # T5X looks at the first value of an event only
            if value.tag == tag:
                is_tensor = value.HasField("tensor")
                yield event.step, float(tf.make_ndarray(value.tensor)) if is_tensor else value.simple_value
