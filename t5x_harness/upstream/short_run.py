"""Options for processes that run a few steps, without preparations that pay only for many."""

from __future__ import annotations

from t5x_harness.upstream.orbax import write_small_arrays_whole
from t5x_harness.upstream.tensorflow import disable_graph_optimization


def configure_for_short_run() -> None:
    """Sets options of TensorFlow and orbax in this process, before it makes an iterator or a checkpoint."""
    disable_graph_optimization()
    write_small_arrays_whole()
