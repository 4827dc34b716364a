"""Objects for runs: steps of models in a process that shares them, and the settings of libraries in a brief process."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from t5x import partitioning, train_state, utils

from t5x_harness.execute.execution import share_steps
from t5x_harness.slices.devices import force_cpu_devices


class Model:
    """Doubles and negates its inputs, and counts how often it is traced."""

    def __init__(self) -> None:
        self.traced = 0

    def predict_batch(self, _params: Any, batch: Mapping[str, Any]) -> Any:
        """Returns twice the inputs."""
        self.traced += 1
        return batch["x"] * 2

    def score_batch(self, _params: Any, batch: Mapping[str, Any]) -> Any:
        """Returns the negated inputs."""
        self.traced += 1
        return -batch["x"]


class Stages:
    """Two stages that make the functions of one model, each with its own partitioner."""

    def __init__(self, _argument: Mapping[str, Any], _progress: Callable[[dict[str, Any]], None]) -> None:
        force_cpu_devices(2)
        share_steps()
        share_steps()

    def outputs(self) -> dict[str, Any]:
        """Returns the predictions and scores of each stage, and how often the model was traced after each."""
        model, found = Model(), []
        for offset in (0, 1):
            found += [[_outputs(method, offset), model.traced] for method in (model.predict_batch, model.score_batch)]
        other = Model()
        _outputs(other.predict_batch, 0)
        function = lambda params, batch: batch["x"] + 1  # noqa: E731 - no method of a model
        return {"stages": found, "of another": other.traced, "of a function": _outputs(function, 0)}


def _outputs(step: Any, offset: int) -> list[float]:
    partitioner = partitioning.PjitPartitioner(num_partitions=1)
    axes = train_state.InferenceState(step=None, params={}, params_axes=None, flax_mutables={})
    infer = utils.get_infer_fn(step, 2, axes, partitioner)
    data = tf.data.Dataset.from_tensor_slices({"x": np.arange(2, dtype=np.float32) + offset}).enumerate()
    state = train_state.InferenceState(step=np.int32(0), params={}, params_axes=None, flax_mutables={})
    return [output for _, output in infer(data, state)]


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
