"""What spares processes that make a few steps the preparations that pay only for many."""

from __future__ import annotations

from t5x_harness.upstream.etils_buckets import take_buckets_for_regional
from t5x_harness.upstream.orbax_arrays import write_small_arrays_whole
from t5x_harness.upstream.tensorflow_graphs import assert_without_branches, take_graphs_as_they_are

__all__ = ["prepare_for_few_steps"]


def prepare_for_few_steps() -> None:
    """Sets options of TensorFlow, orbax and etils in this process, before it makes an iterator or a checkpoint."""
    take_graphs_as_they_are()
    assert_without_branches()
    write_small_arrays_whole()
    take_buckets_for_regional()
