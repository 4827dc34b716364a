"""Options for processes that run a few steps, without preparations that only pay off for many.

Orbax spreads the writing of a replicated array over its replicas. That pays off for gigabytes. For a shrunk model, it
means hundreds of compiled programs that each slice a few bytes. Arrays with at least :data:`SMALLEST_SLICE` bytes on
each device are written as on a TPU.
"""

import jax
import orbax.checkpoint as ocp

from t5x_harness.upstream.tensorflow import disable_graph_optimization

SMALLEST_SLICE = 2**20
"""The least size in bytes of an array that orbax spreads over its replicas."""


def configure_for_short_run() -> None:
    """Sets options of TensorFlow and orbax in this process, before it makes an iterator or a checkpoint.

    Restored values stay the same.
    """
    disable_graph_optimization()
    current = ocp.type_handlers.get_type_handler(jax.Array)
    handler = ocp.type_handlers.ArrayHandler(
        min_slice_bytes_for_replica_parallel=SMALLEST_SLICE,
        # Orbax exports no constructor for the store with which its own handler writes array_metadatas/.
        array_metadata_store=current._array_metadata_store,
    )
    ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
