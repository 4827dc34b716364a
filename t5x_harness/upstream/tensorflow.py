"""What TensorFlow keeps to itself: how it runs input pipelines, and whether it has started."""

from __future__ import annotations

import sys
from typing import Any

NATIVE_FILES = "tensorflow.python.lib.io._pywrap_file_io"
"""The module with the functions of ``tf.io.gfile`` that are native code, ``glob`` among them."""

OPERATIONS_ON_PATHS = {
    "tensorflow.python.ops.gen_summary_ops": ("create_summary_file_writer",),
    "tensorflow.python.ops.gen_io_ops": ("matching_files", "read_file"),
    "tensorflow.python.data.ops.readers": ("_create_or_validate_filenames_dataset",),
}
"""What takes paths as tensors and is looked up where it is called, by module."""


def disable_graph_optimization() -> None:
    """Has TensorFlow run input pipelines in this process neither optimised nor tuned while they run.

    Grappler takes half of what an iterator costs to make, and ``tf.data``'s own rewriting much of the rest, for
    pipelines that here give some tens of examples. And the thread that tunes an iterator may sleep on for seconds when
    that is destroyed, which waits for it.
    """
    import tensorflow as tf
    from tensorflow.python.data.ops import dataset_ops

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # There is no public option for all pipelines. This is asked for what each iterator is made of.
    if hasattr(dataset_ops.DatasetV2, "_apply_debug_options"):
        dataset_ops.DatasetV2._apply_debug_options = _as_it_is


def _as_it_is(dataset: Any) -> Any:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def inline_assert_ops() -> None:
    """Has what graphs assert in this process be one operation, as it is for strings and integers of 32 bits.

    Of all else TensorFlow makes the assertion one side of a branch, so that what it would print is fetched from a
    device only where it fails. Input pipelines run on the host, and SeqIO's checks of lengths, which are of 64 bits,
    spend most of their tracing on those branches.
    """
    from tensorflow.python.ops import control_flow_assert

    if hasattr(control_flow_assert, "Assert"):  # what check_ops and AutoGraph call; the public name stays
        control_flow_assert.Assert = _assert


def _assert(condition: Any, data: Any, summarize: int | None = None, name: str | None = None) -> Any:
    import tensorflow as tf

    if tf.executing_eagerly():
        return tf.debugging.Assert(condition, data, summarize, name)
    with tf.name_scope(name or "Assert"):
        return tf.raw_ops.Assert(condition=condition, data=data, summarize=summarize, name="Assert")


def has_started() -> bool:
    """Returns whether TensorFlow has started its runtime in this process, which a fork would not survive."""
    context = sys.modules.get("tensorflow.python.eager.context")
    current = context.context_safe() if context else None
    # A context that was only configured has no threads yet.
    return current is not None and bool(getattr(current, "_initialized", True))
