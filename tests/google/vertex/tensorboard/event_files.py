"""Code for a client's process: writes event files as training does, and reads the results of an upload.

All values have the form ``{run: {tag: {step: value}}}``, with numbers as floats and tensors and blobs as lists of text.
"""

import collections
import hashlib
import os
from typing import Any

import numpy as np
import tensorflow as tf
from clu import metric_writers
from google.cloud import aiplatform
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.compat.proto import graph_pb2, summary_pb2, tensor_pb2
from tensorboard.plugins.hparams import api as hparams
from tensorboard.util import tensor_util


def write_with_tensorflow(logdir: str) -> None:
    """Writes scalars, text, a histogram, images, hyperparameters and a graph with tf.summary."""
    writer = tf.summary.create_file_writer(logdir)
    with writer.as_default():
        for step in range(20):
            tf.summary.scalar("loss", 1 / (step + 1), step=step)
        tf.summary.scalar('odd "name" / x', 1.5, step=0)
        tf.summary.text("note", ["hello *world*", "ünicode"], step=3)
        tf.summary.histogram("weights", np.arange(100.0), step=4)
        tf.summary.image("pictures", np.arange(2 * 4 * 4 * 3).reshape(2, 4, 4, 3) / 96, step=5)
        hparams.hparams({"learning_rate": 0.1, "optimizer": "adafactor"})
        tf.summary.graph(tf.function(lambda x: x * 2 + 1).get_concrete_function(tf.constant(1.0)).graph)
    writer.close()


def write_with_clu(logdir: str) -> None:
    """Writes metrics as T5X's trainer does."""
    writer = metric_writers.SummaryWriter(logdir)
    for step in (10, 20):
        writer.write_scalars(step, {"accuracy": step / 100, "timing/seconds": 1.25})
    writer.write_texts(20, {"samples": "a *sample*"})
    writer.write_images(20, {"image": np.zeros((1, 4, 4, 3), np.uint8)})
    writer.write_histograms(20, {"grads": np.arange(10.0)}, num_buckets={"grads": 5})
    writer.close()


def written(logdir: str) -> dict[str, Any]:
    """Returns the contents of the event files in a folder, read by TensorBoard's own loader."""
    found: dict[str, Any] = collections.defaultdict(lambda: collections.defaultdict(dict))
    for folder, _, files in os.walk(logdir):
        run = os.path.relpath(folder, logdir).replace("/", "-").replace("_", "-")
        for file in sorted(file for file in files if "tfevents" in file):
            for event in event_file_loader.EventFileLoader(os.path.join(folder, file)).Load():
                for value in event.summary.value:
                    array = tensor_util.make_ndarray(value.tensor)
                    if value.metadata.data_class == summary_pb2.DATA_CLASS_BLOB_SEQUENCE:
                        told_value = digests(array, value.metadata.plugin_data.plugin_name)
                    else:
                        told_value = told(array)
                    found[run][value.tag][str(event.step)] = told_value
    return found


def uploaded(tensorboard: str, experiment: str) -> dict[str, Any]:
    """Returns the service's data of an experiment, with the bytes of blobs."""
    found: dict[str, Any] = {}
    for run in aiplatform.TensorboardRun.list(f"{tensorboard}/experiments/{experiment}"):
        found[run.display_name] = {}
        for series in aiplatform.TensorboardTimeSeries.list(tensorboard_run_name=run.resource_name):
            data = run.api_client.read_tensorboard_time_series_data(tensorboard_time_series=series.resource_name)
            found[run.display_name][series.display_name] = {
                str(point.step): value_of(run.api_client, series.gca_resource, point)
                for point in data.time_series_data.values
            }
    return found


def value_of(client: Any, series: Any, point: Any) -> Any:
    """Returns the value of a point."""
    if "scalar" in point:
        return point.scalar.value
    if "tensor" in point:
        return told(tensor_util.make_ndarray(tensor_pb2.TensorProto.FromString(point.tensor.value)))
    ids = [blob.id for blob in point.blobs.values]
    answers = client.read_tensorboard_blob_data(request={"time_series": series.name, "blob_ids": ids})
    return digests([blob.data for answer in answers for blob in answer.blobs], series.plugin_name)


def told(array: Any) -> Any:
    """Returns a tensor for JSON: a number, or its type and elements."""
    return array.item() if array.dtype.kind == "f" and not array.shape else [str(array.dtype), str(array.tolist())]


def digests(blobs: Any, plugin: str) -> list[str]:
    """Returns the digests of blobs. The uploader rewrites graphs, which may change the order of their maps."""
    if plugin == "graphs":
        blobs = [graph_pb2.GraphDef.FromString(blob).SerializeToString(deterministic=True) for blob in blobs]
    return [f"{len(blob)}:{hashlib.sha256(blob).hexdigest()}" for blob in blobs]
