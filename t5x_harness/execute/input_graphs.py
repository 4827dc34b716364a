"""How TensorFlow runs input pipelines: they are made to give some tens of examples here."""

from __future__ import annotations

from typing import Any

__all__ = ["take_graphs_as_they_are"]


def take_graphs_as_they_are() -> None:
    """Has TensorFlow run input pipelines in this process neither with optimised graphs nor tuned while they run.

    Grappler takes half of what an iterator costs to make, for pipelines that here give some tens of examples. And the
    thread that tunes an iterator may sleep on for seconds when that is destroyed, which waits for it.
    """
    import tensorflow as tf
    from tensorflow.python.data.ops import dataset_ops

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # There is no public option for all pipelines. This is asked for what each iterator is made of.
    if hasattr(dataset_ops.DatasetV2, "_apply_debug_options"):
        dataset_ops.DatasetV2._apply_debug_options = _untuned


def _untuned(dataset: Any) -> Any:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
