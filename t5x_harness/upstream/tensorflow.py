"""Private names of TensorFlow that concern how it runs input pipelines and whether it has started."""

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

NATIVE_FILES = "tensorflow.python.lib.io._pywrap_file_io"
"""The module with the functions of ``tf.io.gfile`` that are native code, such as ``glob``."""

OPERATIONS_ON_PATHS = {
    "tensorflow.python.ops.gen_summary_ops": ("create_summary_file_writer",),
    "tensorflow.python.ops.gen_io_ops": ("matching_files", "read_file"),
    "tensorflow.python.data.ops.readers": ("_create_or_validate_filenames_dataset",),
}
"""Functions by module that take paths as tensors, and whose callers look them up at each call."""


def disable_graph_optimization() -> None:
    """Makes TensorFlow neither optimize nor tune the input pipelines of this process.

    Grappler takes half of the time for making an iterator, and ``tf.data``'s own rewriting much of the rest, but these
    pipelines yield only tens of examples. Also, the thread that tunes an iterator may sleep for seconds when the
    iterator is destroyed, which waits for it.
    """
    import tensorflow as tf
    from tensorflow.python.data.ops import dataset_ops

    def as_it_is(dataset: Any) -> Any:
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return dataset.with_options(options)

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # There is no public option for all pipelines. Each iterator calls this method.
    if hasattr(dataset_ops.DatasetV2, "_apply_debug_options"):
        dataset_ops.DatasetV2._apply_debug_options = as_it_is


def watch_files(opened: Callable[[str, bool], None], renamed: Callable[[str], None]) -> None:
    """Makes ``tf.io.gfile``, which T5X and orbax use for buckets, call functions before it opens and renames files.

    Args:
      opened: takes the path, and whether the file is opened to be written.
      renamed: takes the new path.
    """
    files = importlib.import_module(NATIVE_FILES)

    def watch(name: str, call: Callable[..., None]) -> None:
        original = getattr(files, name)

        @functools.wraps(original)
        def watched(*args: Any) -> Any:
            call(*(arg.decode() if isinstance(arg, bytes) else arg for arg in args))
            return original(*args)

        setattr(files, name, watched)

    watch("WritableFile", lambda path, mode: opened(path, True))
    watch("BufferedInputStream", lambda path, *_: opened(path, False))
    watch("RenameFile", lambda source, target, *_: renamed(target))


def has_started() -> bool:
    """Returns whether TensorFlow has started its runtime in this process, which a fork would not survive."""
    context = sys.modules.get("tensorflow.python.eager.context")
    current = context.context_safe() if context else None
    # A context that was only configured has no threads yet.
    return current is not None and bool(getattr(current, "_initialized", True))
