"""Whole datasets are predicted: every example once, in order, with its own auxiliary values."""

import types
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from t5x import partitioning, utils
from t5x._inference import gather
from t5x.train_state import InferenceState

BATCH = 4 * jax.device_count()
SIZE = 2 * BATCH + 3  # the last batch is not full
PARAMS = {"w": jnp.asarray(10)}


@pytest.fixture(scope="module")
def partitioner() -> Any:
    return partitioning.PjitPartitioner(num_partitions=1)


def examples(size: int = SIZE) -> tf.data.Dataset:
    rows = np.arange(2 * size, dtype=np.int32).reshape(size, 2)
    return tf.data.Dataset.from_tensor_slices({"x": rows}).enumerate()


def state(flax_mutables: Any = None) -> InferenceState:
    mutables = flax.core.freeze(flax_mutables or {})
    return InferenceState(step=jnp.asarray(0), params=flax.core.freeze(PARAMS), flax_mutables=mutables)


def axes(train_state: InferenceState) -> Any:
    everywhere = jax.tree.map(lambda _: partitioning.PartitionSpec(), (train_state.params, train_state.flax_mutables))
    return types.SimpleNamespace(params=everywhere[0], flax_mutables=everywhere[1])


def infer(
    step: Any, partitioner: Any, ds: tf.data.Dataset, rng: Any = None, mutables: Any = None, **kwargs: Any
) -> Any:
    train_state = state(mutables)
    return utils.get_infer_fn(step, BATCH, axes(train_state), partitioner, **kwargs)(ds, train_state, rng)


def total(params: Any, batch: Any) -> Any:
    return batch["x"].sum(axis=1) + params["w"]


def test_every_example_comes_once_and_in_order(partitioner: Any) -> None:
    assert infer(total, partitioner, examples()) == [(i, 4 * i + 1 + 10) for i in range(SIZE)]


def test_a_full_last_batch_needs_no_padding(partitioner: Any) -> None:
    assert [i for i, _ in infer(total, partitioner, examples(BATCH))] == list(range(BATCH))


def test_outputs_keep_their_structure_as_plain_values(partitioner: Any) -> None:
    def step(params: Any, batch: Any) -> Any:
        return {"row": batch["x"], "half": batch["x"][:, 0] / 2}

    first = infer(step, partitioner, examples(3))[1]
    assert first == (1, {"row": [2, 3], "half": 1.0})
    assert type(first[1]["half"]) is float


def test_auxiliary_values_stay_lists_over_examples(partitioner: Any) -> None:
    def step(params: Any, batch: Any) -> Any:
        return batch["x"][:, 0], {"scores": batch["x"].astype(jnp.bfloat16)}

    pairs, aux = infer(step, partitioner, examples(3))
    assert pairs == [(0, 0), (1, 2), (2, 4)]
    assert aux == {"scores": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]}
    _, arrays = infer(step, partitioner, examples(3), keep_aux_as_numpy=True)
    assert [array.dtype.name for array in arrays["scores"]] == ["bfloat16"] * 3


def test_each_batch_draws_from_its_own_key(partitioner: Any) -> None:
    def step(params: Any, batch: Any, rng: Any) -> Any:
        return jnp.broadcast_to(jax.random.uniform(rng), batch["x"].shape[:1])

    rng = jax.random.PRNGKey(3)
    drawn = [value for _, value in infer(step, partitioner, examples(2 * BATCH), rng=rng)]
    first_key, rest = jax.random.split(rng)
    second_key, _ = jax.random.split(rest)
    expected = [float(jax.random.uniform(key)) for key in (first_key, second_key)]
    assert drawn == pytest.approx([expected[0]] * BATCH + [expected[1]] * BATCH)


def test_mutable_variables_reach_a_step_that_takes_them(partitioner: Any) -> None:
    def step(params: Any, batch: Any, flax_mutables: Any = None) -> Any:
        return batch["x"][:, 0] + flax_mutables["offset"]

    pairs = infer(step, partitioner, examples(2), mutables={"offset": jnp.asarray(100)})
    assert pairs == [(0, 100), (1, 102)]


def test_order_is_restored_where_shards_come_back_interleaved() -> None:
    # The gathered batch holds the rows of one host after those of the other.
    results = [(np.array([0, 2, 4, 1, 3, -1]), np.array([0, 20, 40, 10, 30, 0]))]
    indices, outputs = gather(results)
    assert indices.tolist() == [0, 1, 2, 3, 4]
    assert outputs.tolist() == [0, 10, 20, 30, 40]


def test_unknown_length_is_explained(partitioner: Any) -> None:
    with pytest.raises(TypeError, match=r"Inference needs a dataset of known length .*assert_cardinality"):
        infer(total, partitioner, examples().filter(lambda i, x: True))


def test_no_examples_are_refused(partitioner: Any) -> None:
    with pytest.raises(ValueError, match="There is nothing to infer: the dataset has no examples"):
        infer(total, partitioner, examples().take(0))


def test_lost_indices_are_refused(partitioner: Any) -> None:
    twice = examples(3).map(lambda i, x: (i - 2, x))
    with pytest.raises(ValueError, match="outputs for 1 of the dataset's 3 examples"):
        infer(total, partitioner, twice)
