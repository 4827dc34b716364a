"""A SeqIO task made on the spot from files of TFExamples."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence

import seqio
import tensorflow as tf
from absl import logging
from t5x._driver.errors import ConfigError

_READERS = {"tfrecord": tf.data.TFRecordDataset}


def create_task_from_tfexample_file(
    paths: Sequence[str],
    file_type: str,
    inputs_key: str,
    targets_key: str | None,
    features: Mapping[str, seqio.Feature],
    task_id: str | None = None,
) -> str:
    """Registers a task with one split, ``infer``, that reads serialized TFExamples.

    Args:
        paths: files or patterns.
        file_type: 'tfrecord'.
        inputs_key: feature of the examples that holds the input text, UTF-8.
        targets_key: feature that holds the target text, for scoring; or None.
        features: a SeqIO feature for 'inputs', and for 'targets' if there are any.
        task_id: the task's name after ``infer_``; None makes one from paths and keys.

    Returns:
        The name of the task.

    Raises:
        ConfigError: if no file matches, or the type is unknown.
    """
    files = tf.io.gfile.glob(paths)
    if not files:
        raise ConfigError(f"no file matches the TFExample paths {list(paths)}")
    if file_type not in _READERS:
        raise ConfigError(f"TFExample files of type {file_type!r} cannot be read; types are {', '.join(_READERS)}")
    logging.info("Reading TFExamples from %s.", files)
    keys = [inputs_key, *([targets_key] if targets_key else [])]
    if task_id is None:
        identity = ":".join([*paths, inputs_key, targets_key or ""])
        task_id = hashlib.md5(identity.encode()).hexdigest()[:10]
    task = seqio.TaskRegistry.add(
        f"infer_{task_id}",
        source=seqio.TFExampleDataSource(
            {"infer": paths},
            feature_description={key: tf.io.FixedLenFeature([], tf.string) for key in keys},
            reader_cls=_READERS[file_type],
        ),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"inputs": inputs_key, "targets": targets_key}),
            seqio.preprocessors.tokenize_and_append_eos,
        ],
        output_features=features,
    )
    return str(task.name)
