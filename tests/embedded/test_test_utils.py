"""test_utils, for tests of T5X code, and disable_gc_during_import, for programs that start slowly."""

import builtins
import gc
import sys
import types
from pathlib import Path
from unittest import SkipTest

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from t5x import checkpoint_importer, disable_gc_during_import, test_utils
from t5x import partitioning as partitioning_lib


def test_cores_of_a_slice_are_numbered_as_recorded_for_real_ones() -> None:
    devices = test_utils.make_devices(4, 4, 1)
    assert len(devices) == 32
    assert [(d.id, d.process_index, d.coords, d.core_on_chip) for d in devices[:4]] == [
        (0, 0, (0, 0, 0), 0),
        (1, 0, (0, 0, 0), 1),
        (8, 0, (0, 1, 0), 0),
        (9, 0, (0, 1, 0), 1),
    ]
    last = max(devices, key=lambda device: device.id)
    assert (last.id, last.process_index, last.coords) == (31, 3, (3, 3, 0))
    assert test_utils.coords_to_idx((1, 2, 3), (4, 5, 6)) == 1 + 4 * (2 + 5 * 3)


def test_a_small_train_state_lies_over_a_mesh() -> None:
    mesh = test_utils.create_global_mesh((1, 1), ("data", "model"))
    state = test_utils.make_train_state(mesh, (2, 3), PartitionSpec("data"))
    assert state.step == 42
    assert isinstance(state.params["kernel"], jax.Array)
    np.testing.assert_array_equal(state.params["kernel"], [[0, 2, 4], [6, 8, 10]])
    np.testing.assert_array_equal(state.param_states["bias"], np.ones((2, 3)))
    test_utils.assert_same(state, test_utils.make_train_state(mesh, (2, 3), PartitionSpec()))
    axes = test_utils.FakePartitioner(mesh, PartitionSpec("model")).get_mesh_axes(state)
    assert axes.params["kernel"] == PartitionSpec("model")
    assert axes.step is None
    with pytest.raises(SkipTest, match="the test needs 4096 global devices, and there are"):
        test_utils.create_global_mesh((4096,), ("data",))


def test_leaves_of_other_types_or_values_differ() -> None:
    lazy = checkpoint_importer.LazyThreadPoolArray((2,), np.float32, lambda: np.ones(2, np.float32))
    test_utils.assert_equal(lazy, lazy)
    with pytest.raises(AssertionError, match=r"<class 'list'> is not <class 'numpy\.ndarray'>"):
        test_utils.assert_equal([1], np.ones(1))
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        test_utils.assert_equal(np.array([1, 2]), np.array([1, 3]))


def test_the_partitioner_compiles_for_its_mesh() -> None:
    mesh = test_utils.create_global_mesh((1,), ("data",))
    partitioner = test_utils.FakePartitioner(mesh, PartitionSpec("data"))
    assert isinstance(partitioner, partitioning_lib.BasePartitioner)
    step = partitioner.partition(lambda x: 2 * x, in_axis_resources=(PartitionSpec("data"),), out_axis_resources=None)
    np.testing.assert_array_equal(step(np.arange(3)), [0, 2, 4])
    assert partitioner.get_data_layout(8).batch_size == 1


def test_tokenized_examples_are_there_by_split() -> None:
    validation = list(test_utils.get_fake_tokenized_dataset(split="test").as_numpy_iterator())
    assert [example["targets_pretokenized"] for example in validation] == [b"is a validation"] * 4 + [
        b"was another validation"
    ] * 4
    train = list(test_utils.get_fake_tokenized_dataset(None, split="train").take(4).as_numpy_iterator())
    np.testing.assert_array_equal(train[2]["targets"], [17, 4, 23, 4, 10, 6])
    np.testing.assert_array_equal(train[3]["inputs"], train[0]["inputs"])
    inputs, outputs = test_utils.get_fake_vocab()
    assert (inputs.vocab_size, outputs.eos_id) == (128, 1)


def test_the_test_model_takes_fields_of_its_config() -> None:
    config = test_utils.get_t5_test_model(num_heads=2).module.config
    assert (config.num_heads, config.emb_dim, config.mlp_activations) == (2, 8, ("gelu", "linear"))


def test_imports_collect_no_garbage_where_the_variable_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)  # so that it is restored
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "collects_seen.py").write_text("import gc\nON = gc.isenabled()\n")

    def imported() -> types.ModuleType:
        sys.modules.pop("collects_seen", None)
        import collects_seen

        return collects_seen

    disable_gc_during_import.try_disable_gc_during_import()
    assert imported().ON
    monkeypatch.setenv("EXPERIMENTAL_DISABLE_GC_DURING_IMPORT", "1")
    disable_gc_during_import.try_disable_gc_during_import()
    assert not imported().ON
    assert gc.isenabled()
    gc.disable()
    try:
        imported()
        assert not gc.isenabled()
    finally:
        gc.enable()
        sys.modules.pop("collects_seen")
