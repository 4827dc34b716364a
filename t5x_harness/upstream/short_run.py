"""What spares processes that make a few steps the preparations that pay only for many."""

from __future__ import annotations

from t5x_harness.upstream.orbax import write_small_arrays_whole
from t5x_harness.upstream.tensorflow import disable_graph_optimization, inline_assert_ops


def configure_for_short_run() -> None:
    """Sets options of TensorFlow and orbax in this process, before it makes an iterator or a checkpoint."""
    disable_graph_optimization()
    inline_assert_ops()
    write_small_arrays_whole()
