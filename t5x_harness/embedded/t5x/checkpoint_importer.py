"""Checkpoints of the TensorFlow (Mesh TensorFlow) T5 code base, read into T5X's structure."""

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import functools
import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore as ts
from flax import traverse_util
from t5x._absent import name_getter
from t5x._lazy import tf

__getattr__ = name_getter(__name__)
ArrayType = np.ndarray | jax.Array
ScalarOrArrayType = int | float | ArrayType


class LazyArray(abc.ABC):
    """Stands for an array whose shape and dtype are known, but whose data is not loaded until ``get_fn`` returns it."""

    def __init__(self, shape: Sequence[int], dtype: Any, get_fn: Callable[[], Any]):
        self._shape = tuple(shape)
        self._dtype = jnp.dtype(dtype)
        self._get_fn = get_fn

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._shape

    @property
    def dtype(self) -> Any:
        """The dtype that the array is delivered in."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """The size of the loaded array in bytes."""
        return math.prod(self._shape) * self._dtype.itemsize

    def astype(self, dtype: Any) -> LazyArray:
        """Returns the same array, to be delivered in another dtype."""
        return type(self)(self._shape, dtype, self._get_fn)

    @abc.abstractmethod
    def get(self) -> Any:
        """Reads the array."""

    @abc.abstractmethod
    async def get_async(self) -> Any:
        """Reads the array without blocking the event loop."""

    def _delivered(self, array: Any) -> Any:
        return array if array.dtype == self._dtype else array.astype(self._dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


class LazyThreadPoolArray(LazyArray):
    """A lazy array whose ``get_fn`` blocks; ``get_async`` runs it in a thread, of a pool that all arrays share."""

    executor = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="t5x-lazy-array")

    def get(self) -> Any:
        """Reads the array."""
        return self._delivered(self._get_fn())

    async def get_async(self) -> Any:
        """Reads the array in a thread."""
        return await asyncio.wrap_future(self.executor.submit(self.get))


class LazyAwaitableArray(LazyArray):
    """A lazy array whose ``get_fn`` returns an awaitable."""

    _get_fn: Callable[[], Awaitable[np.ndarray]]

    def get(self) -> Any:
        """Reads the array; not possible inside a running event loop."""
        return asyncio.run(self.get_async())

    async def get_async(self) -> Any:
        """Reads the array."""
        return self._delivered(await self._get_fn())

    @classmethod
    def from_tensor_store_spec(cls, ts_spec: ts.Spec, get_fn: Callable[[], Any], dtype: Any = None) -> Self:
        """Makes one with the shape of a TensorStore and, unless one is given, its dtype.

        T5X's checkpoints of version 2 hold the bytes of bfloat16 as uint16, so that is read as bfloat16.
        """
        stored = ts_spec.to_json()
        dtype = jnp.dtype(stored["dtype"] if dtype is None else dtype)
        return cls(stored["metadata"]["shape"], jnp.bfloat16 if dtype == np.uint16 else dtype, get_fn)

    @classmethod
    def from_array(cls, array: np.ndarray, get_fn: Callable[[], Any], dtype: Any = None) -> Self:
        """Makes one with the shape of an array and, unless one is given, its dtype."""
        return cls(array.shape, array.dtype if dtype is None else dtype, get_fn)

    @classmethod
    def from_tensor_store_spec_or_array(
        cls, maybe_ts_spec: ts.Spec | np.ndarray, get_fn: Callable[[], Any], dtype: Any = None
    ) -> Self:
        """Makes one from an array or from a TensorStore."""
        if isinstance(maybe_ts_spec, ts.Spec):
            return cls.from_tensor_store_spec(maybe_ts_spec, get_fn, dtype)
        return cls.from_array(maybe_ts_spec, get_fn, dtype)


_Place = Mapping[str, str]
_Translation = Callable[..., tuple[str | None, Any]]
_SLOTS = {"_slot_v": "v", "_slot_vr": "v_row", "_slot_vc": "v_col"}
_PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "out"}
_TOWER = r"(?P<tower>encoder|decoder|transformer)"  # "transformer" is the tower of a decoder-only model
_BLOCK = _TOWER + r"/block_(?P<block>\d+)/layer_(?P<layer>\d+)"

# Norms of a block in order of its layers.
_BLOCK_NORMS = {
    "encoder": ("pre_attention", "pre_mlp"),
    "decoder": ("pre_self_attention", "pre_cross_attention", "pre_mlp"),
    "transformer": ("pre_self_attention", "pre_mlp"),
}
_ATTENTION = {"SelfAttention": "self_attention", "EncDecAttention": "encoder_decoder_attention"}


class CheckpointTranslator:
    """Translates the names of a flat checkpoint, and if necessary the values, by patterns that are tried in order."""

    def __init__(self) -> None:
        self.rules: list[tuple[re.Pattern[str], _Translation]] = []

    def add(self, pattern: str) -> Callable[[_Translation], _Translation]:
        """Returns a decorator that adds a rule for the names that a regular expression matches as a whole.

        The function is called with the options of ``apply``, the name, the value and the groups, and returns the new
        name and value; None as name drops the variable.
        """

        def register(function: _Translation) -> _Translation:
            self.rules.append((re.compile(pattern), function))
            return function

        return register

    def apply(self, flatdict: Mapping[str, Any], **opts: Any) -> dict[str, Any]:
        """Returns the translated checkpoint; ``opts`` are for the rules.

        Raises:
            ValueError: no rule matches a name.
        """
        translated, unknown = {}, []
        for name, value in flatdict.items():
            for pattern, function in self.rules:
                match = pattern.fullmatch(name)
                if match:
                    new_name, new_value = function(opts, name, value, *match.groups())
                    if new_name is not None:
                        translated[new_name] = new_value
                    break
            else:
                unknown.append(name)
        if unknown:
            raise ValueError(f"No translation is known for {len(unknown)} variables: {', '.join(sorted(unknown)[:10])}")
        return translated


def _tower(name: str) -> str:
    return "decoder" if name == "transformer" else name


def _layer(place: _Place) -> str:
    return f"{_tower(place['tower'])}/layers_{int(place['block'])}"


def _attention(place: _Place) -> str:
    kind = "attention" if place["tower"] == "encoder" else _ATTENTION[place["kind"]]
    return f"{_layer(place)}/{kind}/{_PROJECTIONS[place['matrix']]}/kernel"


def _mlp(place: _Place) -> str:
    number = f"_{place['number']}" if place["number"] else ""
    return f"{_layer(place)}/mlp/{place['matrix']}{number}/kernel"


def _block_norm(place: _Place) -> str:
    return f"{_layer(place)}/{_BLOCK_NORMS[place['tower']][int(place['layer'])]}_layer_norm/scale"


# Parameters of T5 and T5.1.1: the TensorFlow name, without the optimizer's suffix, and the T5X name.
_PARAMETERS: tuple[tuple[str, Callable[[_Place], str]], ...] = (
    (r"shared/embedding", lambda place: "token_embedder/embedding"),
    (rf"{_TOWER}/embedding", lambda place: f"{_tower(place['tower'])}/token_embedder/embedding"),
    (
        rf"{_BLOCK}/SelfAttention/relative_attention_bias",
        lambda place: f"{_layer(place)}/relpos_bias/rel_embedding",
    ),
    (rf"{_BLOCK}/(?P<kind>SelfAttention|EncDecAttention)/(?P<matrix>[qkvo])", _attention),
    (rf"{_BLOCK}/DenseReluDense/(?P<matrix>wi|wo)(?:_(?P<number>\d+))?/kernel", _mlp),
    (rf"{_BLOCK}/(?:layer|rms)_norm/scale", _block_norm),
    (
        rf"{_TOWER}/(?:final_layer|rms)_norm/scale",
        lambda place: f"{_tower(place['tower'])}/{_tower(place['tower'])}_norm/scale",
    ),
    (r"(?:decoder|transformer)/logits/kernel", lambda place: "decoder/logits_dense/kernel"),
)


def _translate(
    pattern: re.Pattern[str],
    new_name: Callable[[_Place], str],
    opts: Any,
    name: str,
    value: Any,
    *groups: str | None,
) -> tuple[str, Any]:
    del opts, name
    by_number = sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)
    place = {group: text or "" for group, text in zip(by_number, groups, strict=True)}
    parameter = new_name(place)
    if place["slot"]:
        return f"state/param_states/{parameter}/{_SLOTS[place['slot']]}", value
    return f"target/{parameter}", value


def _t5_translator() -> CheckpointTranslator:
    translator = CheckpointTranslator()
    translator.add("global_step")(lambda opts, name, value: ("state/step", value.astype("int32")))
    for pattern, new_name in _PARAMETERS:
        whole = re.compile(rf"{pattern}(?P<slot>{'|'.join(_SLOTS)}|)")
        translator.add(whole.pattern)(functools.partial(_translate, whole, new_name))
    return translator


t5_importer = _t5_translator()


_FIRST_LAYER_BIAS = re.compile(r"layers_(\d+)/relpos_bias")


def load_tf_ckpt(path: str | os.PathLike[str]) -> dict[str, LazyArray]:
    """Returns the variables of a TensorFlow checkpoint, or of the one in a folder; each is read on demand.

    Raises:
        ValueError: there is no such checkpoint.
    """
    try:
        reader = tf.train.load_checkpoint(os.fspath(path))
    except (ValueError, tf.errors.NotFoundError) as error:
        raise ValueError(f"{path} is not a TensorFlow checkpoint: {error}") from error
    dtypes = reader.get_variable_to_dtype_map()

    def lazy(name: str, shape: Sequence[int]) -> LazyArray:
        return LazyThreadPoolArray(shape, dtypes[name].as_numpy_dtype, lambda: np.asarray(reader.get_tensor(name)))

    return {name: lazy(name, shape) for name, shape in reader.get_variable_to_shape_map().items()}


def restore_from_t5_checkpoint(
    state_dict: Mapping[str, Any],
    path: str | os.PathLike[str],
    lazy_parameters: bool = False,
    strict: bool = True,
    translator: CheckpointTranslator | None = None,
) -> Mapping[str, Any]:
    """Reads a TensorFlow T5 checkpoint, or the one in a folder, as a nested dict like ``state_dict`` of a T5X model.

    The model's optimizer is Adafactor. ``lazy_parameters`` returns arrays that are read on demand; ``strict``
    refuses variables that the model does not have. Names are translated for T5 and T5.1.1, unless by another
    ``translator``.

    Raises:
        ValueError: variables are unknown, missing, or of another shape.
    """
    translated = (translator or t5_importer).apply(load_tf_ckpt(path))
    leaves = _maybe_correct_relpos_bias(translated | _unused_moments(translated))
    model = traverse_util.flatten_dict(state_dict, sep="/")
    extra = sorted(leaves.keys() - model.keys())
    if extra and strict:
        raise ValueError(
            f"TensorFlow checkpoint {path} has {len(extra)} leaves that the model has not: {', '.join(extra[:10])}. "
            "Leave them out with strict=False (RestoreCheckpointConfig.strict = False)"
        )
    missing = sorted(model.keys() - leaves.keys())
    if missing:
        raise ValueError(
            f"TensorFlow checkpoint {path} lacks {len(missing)} leaves of the model: {', '.join(missing[:10])}"
        )
    for name, expected in model.items():
        if tuple(leaves[name].shape) != tuple(expected.shape):
            raise ValueError(
                f"{name} has shape {tuple(leaves[name].shape)} in TensorFlow checkpoint {path} and "
                f"{tuple(expected.shape)} in the model"
            )
    state = traverse_util.unflatten_dict({name: leaves[name] for name in model}, sep="/")
    if lazy_parameters:
        return state
    return jax.tree.map(lambda leaf: leaf.get() if isinstance(leaf, LazyArray) else leaf, state)


def _unused_moments(leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the moments that T5X's Adafactor keeps as placeholders and TensorFlow did not write."""
    unused: dict[str, np.ndarray] = {}
    for name in leaves:
        if not name.startswith("target/"):
            continue
        moments = "state/param_states/" + name.removeprefix("target/")
        placeholders = ["m"]
        if f"{moments}/v" in leaves:
            placeholders += ["v_row", "v_col"]
        elif f"{moments}/v_row" in leaves:
            placeholders += ["v"]
        unused |= {f"{moments}/{moment}": np.zeros((1,), np.float32) for moment in placeholders}
    return unused


def _maybe_correct_relpos_bias(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Moves relative position biases out of the first layer if only that layer has them: all layers share them."""
    layers = {int(match.group(1)) for match in map(_FIRST_LAYER_BIAS.search, leaves) if match}
    if max(layers, default=0) > 0:
        return dict(leaves)
    return {_FIRST_LAYER_BIAS.sub("relpos_bias", name): leaf for name, leaf in leaves.items()}
