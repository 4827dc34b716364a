"""Train states of two parameters, small enough that every number is known."""

from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import partitioning as flax_partitioning
from flax.traverse_util import flatten_dict
from jax.sharding import PartitionSpec
from t5x import adafactor, optimizers, partitioning, state_utils, train_state

KERNEL = np.arange(32, dtype=np.float32).reshape(8, 4) + np.float32(0.1)
SCALE = np.full((4,), 1.1, np.float32)


def axes(*names: str) -> flax_partitioning.AxisMetadata:
    return flax_partitioning.AxisMetadata(names=PartitionSpec(*names))


def variables(rows: int = 8, layer: str = "enc", dtype: Any = jnp.float32) -> flax.core.FrozenDict[str, Any]:
    """Returns variables as from ``Module.init``: a kernel ``enc/kernel`` and a vector ``scale``, with axis names."""
    kernel = jnp.asarray(np.resize(KERNEL, (rows, 4)), dtype)
    return flax.core.freeze(
        {
            "params": {layer: {"kernel": kernel}, "scale": jnp.asarray(SCALE, dtype)},
            "params_axes": {layer: {"kernel_axes": axes("embed", "mlp")}, "scale_axes": axes("embed")},
        }
    )


def factoring_adafactor(**settings: Any) -> adafactor.Adafactor:
    """Returns an Adafactor that factors the kernel."""
    rules = adafactor.standard_logical_factor_rules()
    return adafactor.Adafactor(0.1, logical_factor_rules=rules, min_dim_size_to_factor=4, **settings)


def state(
    step: int = 3, optimizer: optimizers.OptimizerDef | None = None, **settings: Any
) -> train_state.FlaxOptimTrainState:
    """Returns a state at a step."""
    made = train_state.FlaxOptimTrainState.create(optimizer or factoring_adafactor(), variables(**settings))
    return made.replace_step(jnp.asarray(step, jnp.int32))


def shapes(of: Any) -> Any:
    """Returns the state without values, as the train script passes it to checkpointers."""
    return jax.eval_shape(lambda: of)


def partitioner(**settings: Any) -> partitioning.PjitPartitioner:
    return partitioning.PjitPartitioner(num_partitions=1, **settings)


def assignment(*rules: tuple[str, str | None]) -> Any:
    """Returns a transformation that renames or drops leaves of a stored state."""
    return lambda stored, target, **settings: state_utils.apply_assignment_map(stored, target, rules, **settings)


def flat(tree: Any) -> dict[str, Any]:
    """Returns the leaves by path, as NumPy arrays."""
    leaves = flatten_dict(flax.core.unfreeze(tree), sep="/")
    return {path: None if leaf is None else np.asarray(leaf) for path, leaf in leaves.items()}


def assert_same(actual: Any, expected: Any) -> None:
    """Asserts that both trees have the same paths, dtypes and values."""
    actual, expected = flat(actual), flat(expected)
    assert actual.keys() == expected.keys()
    for path, value in expected.items():
        assert actual[path].dtype == value.dtype, path
        np.testing.assert_array_equal(actual[path], value, err_msg=path)
