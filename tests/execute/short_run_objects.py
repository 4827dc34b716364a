"""An object for a run, imported by the run and not by the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Options:
    """The settings of libraries in a process that the harness has set up."""

    def __init__(self, _argument: Mapping[str, Any], _progress: Callable[[Mapping[str, Any]], None]) -> None:
        from t5x_harness.bootstrap.start import start

        start()

    def read(self) -> dict[str, Any]:
        import jax
        import orbax.checkpoint as ocp
        import t5x.partitioning  # noqa: F401 - its import sets them
        import tensorflow as tf

        handler = ocp.type_handlers.get_type_handler(jax.Array)
        options = tf.data.Dataset.range(1)._apply_debug_options().options()
        return {
            "optimises graphs": not tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer"),
            "tunes": options.autotune.enabled is not False,
            "rewrites": options.experimental_optimization.apply_default_optimizations is not False,
            "smallest slice": handler._min_slice_bytes_for_replica_parallel,
        }
