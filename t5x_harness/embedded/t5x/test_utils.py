"""Helpers for tests of T5X code: fake devices, small train states, a few tokenized examples."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from t5x import adafactor, checkpoints, models, optimizers, partitioning
from t5x import train_state as train_state_lib
from t5x._lazy import seqio, tf
from t5x.checkpoint_importer import LazyArray
from t5x.examples.t5 import network

MeshSpec = list[tuple[str, int]]
"""Axes of a mesh and their sizes, in order."""


@dataclasses.dataclass(frozen=True)
class CpuDevice:
    """A fake CPU device."""

    id: int
    process_index: int
    device_kind: str = "cpu"
    platform: str = "cpu"


@dataclasses.dataclass(frozen=True)
class GpuDevice:
    """A fake GPU device."""

    id: int
    process_index: int
    device_kind: str = "gpu"
    platform: str = "Tesla V100-SXM2-16GB"


@dataclasses.dataclass(frozen=True)
class TpuDevice:
    """A fake TPU core, with coordinates."""

    id: int
    process_index: int
    coords: Sequence[int]
    core_on_chip: int
    device_kind: str = "TPU v3"
    platform: str = "tpu"


def coords_to_idx(coords: tuple[int, ...], bounds: tuple[int, ...]) -> int:
    """Returns the index of a grid point; the first axis varies fastest."""
    return int(np.ravel_multi_index(coords, bounds, order="F"))


def make_devices(
    nx: int,
    ny: int,
    nz: int,
    nc: int = 2,
    host_layout: tuple[int, ...] = (2, 2, 1, 2),
    kind: str = "TPU v3",
) -> list[TpuDevice]:
    """Returns the cores of a TPU slice.

    It has ``nx``, ``ny`` and ``nz`` chips along its axes, with ``nc`` cores each. ``host_layout`` are x, y, z and cores
    of one host.
    """
    bounds = (nx, ny, nz, nc)
    hosts = tuple(size // part for size, part in zip(bounds, host_layout, strict=True))

    def number(place: Sequence[int], grid: Sequence[int]) -> int:
        return coords_to_idx((place[3], *place[:3]), (grid[3], *grid[:3]))  # the cores of a chip are consecutive

    return [
        TpuDevice(
            id=number(place, bounds),
            process_index=number([at // part for at, part in zip(place, host_layout, strict=True)], hosts),
            coords=place[:3],
            core_on_chip=place[3],
            device_kind=kind,
        )
        for place in itertools.product(*map(range, bounds))
    ]


def make_train_state_base(
    *,
    step: int | np.integer[Any],
    params: Mapping[str, Any],
    param_states: Mapping[str, Any],
    flax_optimizer_def: optimizers.OptimizerDefType = optimizers.sgd(0.1),  # noqa: B008 (T5X's default, and immutable)
) -> train_state_lib.TrainState:
    """Returns the train state with these values."""
    state = optimizers.OptimizerState(step=step, param_states=param_states)
    return train_state_lib.FlaxOptimTrainState(optimizers.Optimizer(flax_optimizer_def, state=state, target=params))


def make_train_state_replicated(
    global_input_shape: Sequence[int], step: int = 42, dtype: Any = np.float32
) -> train_state_lib.TrainState:
    """Returns a train state with a kernel that counts up by twos and a bias of twos; their states are half of them."""
    halves = {
        "bias": np.ones(global_input_shape, dtype),
        "kernel": np.arange(math.prod(global_input_shape), dtype=dtype).reshape(global_input_shape),
    }
    return make_train_state_base(
        step=np.int32(step),
        params={name: 2 * half for name, half in halves.items()},
        param_states={name: half.astype(np.float32) for name, half in halves.items()},
    )


def make_train_state(
    global_mesh: Mesh,
    global_input_shape: Sequence[int],
    mesh_axes: PartitionSpec,
    step: int = 42,
    dtype: Any = np.float32,
) -> train_state_lib.TrainState:
    """Returns the state of :func:`make_train_state_replicated`, laid over a mesh."""
    lay = functools.partial(
        create_sharded_array, global_shape=global_input_shape, global_mesh=global_mesh, mesh_axes=mesh_axes
    )
    state = make_train_state_replicated(global_input_shape, step, dtype)
    return jax.tree.map(lay, state, is_leaf=lambda leaf: isinstance(leaf, np.ndarray))


def create_sharded_array(
    arr: Any, global_shape: Sequence[int], global_mesh: Mesh, mesh_axes: PartitionSpec
) -> jax.Array | Any:
    """Lays an array over a mesh; a scalar is unchanged."""
    if np.isscalar(arr):
        return arr
    return jax.make_array_from_callback(tuple(global_shape), NamedSharding(global_mesh, mesh_axes), arr.__getitem__)


def get_t5_test_model(**config_overrides: Any) -> models.EncoderDecoderModel:
    """Returns a T5 1.1 with two layers, eight dimensions and T5's vocabulary, which is read on first use."""
    config = network.T5Config(
        **{
            "vocab_size": 32128,
            "dtype": "bfloat16",
            "emb_dim": 8,
            "num_heads": 4,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "head_dim": 3,
            "mlp_dim": 16,
            "mlp_activations": ("gelu", "linear"),
            "dropout_rate": 0.0,
            "logits_via_embedding": False,
        }
        | config_overrides
    )
    vocabulary = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model")
    rules = adafactor.standard_logical_factor_rules()
    return models.EncoderDecoderModel(
        network.Transformer(config),
        input_vocabulary=vocabulary,
        output_vocabulary=vocabulary,
        optimizer_def=adafactor.Adafactor(decay_rate=0.8, step_offset=0, logical_factor_rules=rules),
    )


@contextlib.contextmanager
def with_mesh(named_shape: MeshSpec) -> Iterator[None]:
    """Enters a mesh of this process's first devices; skips the test if there are too few."""
    axes, shape = zip(*named_shape, strict=True)
    with _mesh(jax.local_devices(), shape, axes, "local"):
        yield


def create_global_mesh(mesh_shape: Sequence[int], axis_names: Sequence[str]) -> Mesh:
    """Returns a mesh of the first devices of all processes; skips the test if there are too few."""
    return _mesh(sorted(jax.devices(), key=lambda device: device.id), mesh_shape, axis_names, "global")


def _mesh(devices: Sequence[Any], shape: Sequence[int], axes: Sequence[str], whose: str) -> Mesh:
    size = math.prod(shape)
    if len(devices) < size:
        raise unittest.SkipTest(f"the test needs {size} {whose} devices, and there are {len(devices)}")
    return Mesh(np.array(devices[:size]).reshape(shape), axes)


@dataclasses.dataclass
class _Vocabulary:
    vocab_size: int = 128
    eos_id: int = 1


def get_fake_vocab() -> tuple[Any, Any]:
    """Returns a vocabulary, for inputs and targets, that the examples of :func:`get_fake_tokenized_dataset` fit."""
    vocabulary = _Vocabulary()
    return vocabulary, vocabulary


# By the last word of the inputs: its token, the targets and their tokens.
_EXAMPLES = {
    "train": [
        ("this", 16, "is a test", (3, 8, 6, 3, 5, 10)),
        ("that", 16, "was a test", (17, 5, 6, 3, 5, 10)),
        ("those", 16, "were tests", (17, 4, 23, 4, 10, 6)),
    ],
    "validation": [
        ("this", 16, "is a validation", (3, 8, 6, 3, 5, 3, 25, 5)),
        ("that", 17, "was another validation", (17, 5, 6, 3, 5, 22, 7, 24)),
    ],
}
_TIMES = {"train": 1, "validation": 4}


def get_fake_tokenized_dataset(*_: Any, split: str = "validation", **__: Any) -> tf.data.Dataset:
    """Returns a few tokenized examples: "train" repeats three forever; "validation" and "test" have two, four times.

    The other arguments of ``seqio.Task.get_dataset`` are accepted and not read.
    """
    split = "validation" if split == "test" else split
    examples = [
        {
            "inputs": (3, 13, 7, 14, 15, 9, 4, token),
            "inputs_pretokenized": f"complete: {word}",
            "targets": tokens,
            "targets_pretokenized": text,
        }
        for word, token, text, tokens in _EXAMPLES[split]
        for _repeat in range(_TIMES[split])
    ]
    spec = {
        name: tf.TensorSpec([], tf.string) if name.endswith("pretokenized") else tf.TensorSpec([None], tf.int32)
        for name in examples[0]
    }
    dataset = tf.data.Dataset.from_generator(lambda: examples, output_signature=spec)
    return dataset.repeat() if split == "train" else dataset


def assert_equal(a: Any, b: Any) -> None:
    """Raises an AssertionError unless two leaves have the same type and values."""
    assert isinstance(a, type(b)), f"{type(a)} is not {type(b)}"
    a, b = (leaf.get() if isinstance(leaf, LazyArray) else leaf for leaf in (a, b))
    if isinstance(a, jax.Array):
        for shard, other in zip(a.addressable_shards, b.addressable_shards, strict=True):
            np.testing.assert_array_equal(shard.data, other.data)
    else:
        np.testing.assert_array_equal(a, b)


def assert_same(tree_a: Any, tree_b: Any) -> None:
    """Raises an AssertionError unless two trees have the same leaves."""
    jax.tree.map(assert_equal, jax.device_get(tree_a), jax.device_get(tree_b))


def get_train_state_from_variables(
    variables: Mapping[str, Any],
    optimizer_def: optimizers.OptimizerDefType = adafactor.Adafactor(0.0),  # noqa: B008 (T5X's default, and immutable)
) -> train_state_lib.TrainState:
    """Returns a new train state with the parameters among the variables of a Flax module."""
    return train_state_lib.FlaxOptimTrainState(optimizer_def.create(variables["params"]))


class FakePartitioner(partitioning.BasePartitioner):
    """A partitioner that lays everything over a mesh in the same way, ``mesh_axes``."""

    def __init__(self, mesh: Mesh, mesh_axes: PartitionSpec, params_on_devices: bool = True):
        super().__init__(num_partitions=1, params_on_devices=params_on_devices)
        self._global_mesh = mesh
        self._mesh_axes = mesh_axes
        self._chunker = partitioning.LocalChunker(mesh)

    def get_data_layout(self, batch_size: int | None = None, host_index: int | None = None) -> partitioning.DataLayout:
        """Returns the layout of a batch of one example."""
        return partitioning.DataLayout(batch_size=1, shard_id=1, num_shards=1, is_first_host_in_replica_set=True)

    @property
    def mesh(self) -> Mesh:
        """The given mesh."""
        return self._global_mesh

    @property
    def _local_chunker(self) -> partitioning.LocalChunker:
        return self._chunker

    def move_params_to_devices(self, train_state: Any, train_state_axes: Any) -> Any:
        """Returns the train state unchanged."""
        return train_state

    def get_mesh_axes(self, train_state: Any) -> Any:
        """Returns ``mesh_axes`` for every leaf except the step."""
        return jax.tree.map(lambda _: self._mesh_axes, train_state).replace_step(None)

    def partition(
        self,
        fn: Callable[..., Any],
        in_axis_resources: Any,
        out_axis_resources: Any,
        static_argnums: int | Sequence[int] = (),
        donate_argnums: int | Sequence[int] = (),
    ) -> Any:
        """Compiles a function for the mesh."""
        jitted = jax.jit(
            fn,
            in_shardings=in_axis_resources,
            out_shardings=out_axis_resources,
            static_argnums=static_argnums,
            donate_argnums=donate_argnums,
        )
        return partitioning.PjittedFnWithContext(jitted, self.mesh)

    def compile(self, partitioned_fn: Any, *args: Any) -> None:
        """Returns None: there is nothing to run on."""


def save(checkpointer_or_manager: Any, train_state: train_state_lib.TrainState, force: bool = False) -> Any:
    """Saves a train state and waits for it."""
    saved = checkpointer_or_manager.save(train_state, force=force)
    checkpointer_or_manager.wait_until_finished()
    return saved


def create_checkpointer_or_manager(
    train_state_shapes: Any,
    partitioner: partitioning.BasePartitioner,
    directory: str,
    dataset_iterator: Any = None,
    save_dtype: Any = None,
    restore_dtype: Any = None,
    best: bool = False,
    keep: int | None = None,
    period: int | None = 1,
    checkpoint_steps: Sequence[int] | None = None,
    keep_checkpoints_without_metrics: bool = True,
) -> checkpoints.OrbaxCheckpointManagerInterface:
    """Makes T5X's checkpoint manager; ``best`` keeps checkpoints by "train/accuracy"."""
    return checkpoints.OrbaxCheckpointManagerInterface(
        directory,
        train_state_shapes,
        partitioner,
        dataset_iterator=dataset_iterator,
        save_dtype=save_dtype,
        restore_dtype=restore_dtype,
        keep=keep,
        period=period,
        checkpoint_steps=checkpoint_steps,
        metric_name_to_monitor="train/accuracy" if best else None,
        keep_checkpoints_without_metrics=keep_checkpoints_without_metrics,
    )
