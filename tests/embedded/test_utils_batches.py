"""Batches are placed on the mesh as the partitioner requires, row by row, and read without being consumed."""

from collections.abc import Iterator
from typing import Any

import clu.data
import jax
import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver
from jax.sharding import Mesh, PartitionSpec
from t5x import partitioning, utils

ROWS = 4 * jax.device_count()


@pytest.fixture
def partitioner() -> partitioning.BasePartitioner:
    return partitioning.PjitPartitioner(num_partitions=1)


def dataset(rows: int = ROWS, batches: int = 3) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(
        {"x": np.arange(rows * batches * 2, dtype=np.int32).reshape(-1, 2)}
    ).batch(rows, drop_remainder=True)


def prepare(source: Any, partitioner: Any) -> Any:
    layout = partitioner.get_data_layout(ROWS)
    return utils.prepare_train_iter(source, partitioner=partitioner, checkpoint_cfg=None, data_layout=layout)


def test_every_row_is_where_the_sharding_says(partitioner: Any) -> None:
    iterator = prepare(dataset(), partitioner)
    batch = next(iterator)["x"]
    expected = np.arange(ROWS * 2).reshape(ROWS, 2)
    assert batch.sharding.spec == partitioner.data_partition_spec
    for shard in batch.addressable_shards:
        np.testing.assert_array_equal(shard.data, expected[shard.index])
    np.testing.assert_array_equal(batch, expected)


def test_peeking_does_not_consume(partitioner: Any) -> None:
    iterator = prepare(dataset(), partitioner)
    peeked = iterator.peek()["x"]
    np.testing.assert_array_equal(next(iterator)["x"], peeked)
    assert int(next(iterator)["x"][0, 0]) == 2 * ROWS


def test_position_is_saved_and_restored(partitioner: Any, tmp_path: Any) -> None:
    iterator = prepare(dataset(), partitioner)
    next(iterator)
    iterator.save(tmp_path / "position")
    expected = np.asarray(next(iterator)["x"])
    fresh = prepare(dataset(), partitioner)
    fresh.restore(tmp_path / "position")
    np.testing.assert_array_equal(next(fresh)["x"], expected)
    fresh.reset()
    assert int(next(fresh)["x"][0, 0]) == 0


def test_checkpoints_get_the_tensorflow_iterator(partitioner: Any) -> None:
    inner = clu.data.dataset_iterator.TfDatasetIterator(dataset(), checkpoint=True)
    sharded = utils.ShardedDatasetIterator(inner, partitioner, {"x": (ROWS, 2)})
    assert sharded.iterator is inner.iterator
    assert sharded.element_spec == inner.element_spec
    assert utils.ShardedDatasetIterator(sharded, partitioner, {}).iterator is sharded


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_rows_that_do_not_divide_are_named_with_the_shards() -> None:
    class Split:
        mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))
        data_partition_spec = PartitionSpec("data")

    class Wide(Split):
        # The check looks only at shapes, so the mesh may have more devices than this machine.
        mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))

    inner = clu.data.dataset_iterator.TfDatasetIterator(dataset(6), checkpoint=True)
    assert next(utils.ShardedDatasetIterator(inner, Split, {"x": (6, 2)}))["x"].shape == (6, 2)
    with pytest.raises(ValueError, match="be divided over 4 shards") as error:
        next(utils.ShardedDatasetIterator(inner, Wide, {"x": (6, 2)}))
    assert str(error.value) == (
        "A batch of 6 examples can't be divided over 4 shards (mesh axis data): choose a batch size that is a multiple "
        "of 4."
    )


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_other_sources_are_refused(partitioner: Any) -> None:
    with pytest.raises(ValueError, match="get_dataset_fn returned unsupported type <class 'list'>"):
        prepare([{"x": 1}], partitioner)


@pytest.mark.embedded("an AirIO of the test's own takes the place of the one that T5X imports")
def test_airio_iterators_are_peeked_into_as_they_are(partitioner: Any) -> None:
    spec = {"x": jax.ShapeDtypeStruct((2, 3), np.int32)}
    methods = {"__module__": "airio.core", "element_spec": spec}
    iterator = type("AirIODatasetIterator", (clu.data.dataset_iterator.DatasetIterator,), methods)
    iterator.__abstractmethods__ = frozenset()
    one = iterator()
    assert prepare(one, partitioner) is one
    assert utils.get_zeros_batch_like_dataset(one, batch_size=8)["x"].shape == (2, 3)


def test_zeros_are_like_the_spec() -> None:
    batch = utils.get_zeros_batch_like_spec({"x": jax.ShapeDtypeStruct((2, 3), np.int32)})
    np.testing.assert_array_equal(batch["x"], np.zeros((2, 3)))
    assert batch["x"].dtype == np.int32


def test_zeros_are_like_the_dataset() -> None:
    source = tf.data.Dataset.from_tensors({"x": np.zeros((2, 5), np.float32), "y": np.zeros((2,), np.int32)})
    own = utils.get_zeros_batch_like_dataset(source)
    assert {name: (array.shape, array.dtype.name) for name, array in own.items()} == {
        "x": ((2, 5), "float32"),
        "y": ((2,), "int32"),
    }
    larger = utils.get_zeros_batch_like_dataset(source, batch_size=7)
    assert {name: array.shape for name, array in larger.items()} == {"x": (7, 5), "y": (7,)}


@pytest.fixture
def prng_impl() -> Iterator[None]:
    before = jax.config.jax_default_prng_impl
    yield
    jax.config.update("jax_default_prng_impl", before)


@pytest.mark.usefixtures("prng_impl")
def test_hardware_rng_changes_the_kind_of_new_keys() -> None:
    assert jax.random.PRNGKey(0).shape == (2,)
    utils.set_hardware_rng_ops()
    assert jax.config.jax_default_prng_impl == "unsafe_rbg"
    assert jax.random.PRNGKey(0).shape == (4,)


def test_one_host_agrees_with_itself() -> None:
    utils.multihost_assert_equal({"seed": np.array(3), "shape": np.array([1, 2])}, "differs")
    utils.sync_global_devices("alone")


def test_main_gets_what_the_parser_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program", "--known", "rest"])
    got: list[list[str]] = []

    def parse(argv: list[str]) -> list[str]:
        assert argv == ["program", "--known", "rest"]
        return flags.FLAGS([argv[0], argv[2]])

    with flagsaver.flagsaver(), pytest.raises(SystemExit) as done:
        utils.run_main(lambda argv: got.append(list(argv)), parse)
    assert not done.value.code
    assert got == [["program", "rest"]]
