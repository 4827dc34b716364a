"""The names of each array of a T5 in T5X and in transformers, and the conversion from one to the other.

A kernel is [in, out] in T5X and [out, in] in transformers; relative position biases are [heads, buckets] in T5X and
[buckets, heads] in transformers. Scanned layers have one array in T5X, and one for each layer in transformers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_harness.conversion.architecture import Architecture, Shape

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

EMBEDDING, LOGITS = "shared.weight", "lm_head.weight"
STACKS = ("encoder", "decoder")

_ATTENTION = {"query": "q", "key": "k", "value": "v", "out": "o"}
_BIAS = "relative_attention_bias"

_SUBLAYERS = {
    "encoder": (("attention", "SelfAttention", "pre_attention_layer_norm"),),
    "decoder": (
        ("self_attention", "SelfAttention", "pre_self_attention_layer_norm"),
        ("encoder_decoder_attention", "EncDecAttention", "pre_cross_attention_layer_norm"),
    ),
}
"""The attentions of a layer in order: T5X's name, transformers' name, and T5X's name of the norm before it."""


@dataclasses.dataclass(frozen=True)
class ParameterMapping:
    """An array of T5X, and its counterpart in transformers.

    Attributes:
      name: the name in T5X, without ``target/``.
      layer_shape: the shape in T5X, of one layer's part if layers are scanned.
      pieces: the names in transformers: one, or one for each layer if layers are scanned.
      scan_axis: the axis for the layers; None for an array of one layer, or outside of layers.
      inputs: the number of first axes that are contracted with the input of a kernel; 0 for an array that is the same
        in transformers, such as a norm.
    """

    name: str
    layer_shape: Shape
    pieces: tuple[str, ...]
    scan_axis: int | None = None
    inputs: int = 0

    @property
    def shape(self) -> Shape:
        """The shape of the array in T5X."""
        if self.scan_axis is None:
            return self.layer_shape
        return (*self.layer_shape[: self.scan_axis], len(self.pieces), *self.layer_shape[self.scan_axis :])

    @property
    def piece_shape(self) -> Shape:
        """The shape of each array in transformers."""
        if not self.inputs:
            return self.layer_shape
        rows, columns = self.layer_shape[: self.inputs], self.layer_shape[self.inputs :]
        return int(np.prod(columns)), int(np.prod(rows))

    def to_pieces(self, array: Array) -> Iterator[tuple[str, Array]]:
        """Yields the arrays of transformers, as views of T5X's array."""
        for index, name in enumerate(self.pieces):
            part = array if self.scan_axis is None else array[(slice(None),) * self.scan_axis + (index,)]
            if self.inputs:
                part = part.reshape(self.piece_shape[::-1]).T
            yield name, part

    def piece_to_layer(self, piece: Array) -> Array:
        """Converts an array of transformers to one layer's part of T5X's array."""
        return piece.T.reshape(self.layer_shape) if self.inputs else piece


def parameters(sizes: Architecture) -> tuple[ParameterMapping, ...]:
    """Returns all arrays of a network, stack by stack."""
    width, vocabulary = sizes.emb_dim, sizes.vocab_size
    found = [ParameterMapping("token_embedder/embedding", (vocabulary, width), (EMBEDDING,))]
    for stack in STACKS:
        found += _of_layers(sizes, stack)
        if not sizes.bias_per_layer:
            name = f"{stack}.block.0.layer.0.SelfAttention.{_BIAS}.weight"
            found.append(
                ParameterMapping(
                    f"{stack}/relpos_bias/rel_embedding", (sizes.num_heads, sizes.buckets), (name,), inputs=1
                )
            )
        found.append(ParameterMapping(f"{stack}/{stack}_norm/scale", (width,), (f"{stack}.final_layer_norm.weight",)))
    if sizes.own_logits:
        found.append(ParameterMapping("decoder/logits_dense/kernel", (width, vocabulary), (LOGITS,), inputs=1))
    return tuple(found)


def _of_layers(sizes: Architecture, stack: str) -> Iterator[ParameterMapping]:
    """Yields the arrays of the layers of a stack."""
    number = sizes.layers(stack)
    for name, in_layer, shape, inputs in _of_one_layer(sizes, stack):
        pieces = tuple(f"{stack}.block.{index}.{in_layer}" for index in range(number))
        if sizes.scan_axis is not None:
            yield ParameterMapping(f"{stack}/{stack}/{name}", shape, pieces, sizes.scan_axis, inputs)
        else:
            for index, piece in enumerate(pieces):
                yield ParameterMapping(f"{stack}/layers_{index}/{name}", shape, (piece,), None, inputs)


def _of_one_layer(sizes: Architecture, stack: str) -> Iterator[tuple[str, str, Shape, int]]:
    """Yields T5X's name, transformers' name, T5X's shape and the number of input axes of each array of a layer."""
    width, mlp_dim = sizes.emb_dim, sizes.mlp_dim
    heads = (sizes.num_heads * sizes.head_dim,) if sizes.joined_heads else (sizes.num_heads, sizes.head_dim)
    for index, (ours, theirs, norm) in enumerate(_SUBLAYERS[stack]):
        yield f"{norm}/scale", f"layer.{index}.layer_norm.weight", (width,), 0
        for kernel, letter in _ATTENTION.items():
            is_out = kernel == "out"
            shape = (*heads, width) if is_out else (width, *heads)
            yield (
                f"{ours}/{kernel}/kernel",
                f"layer.{index}.{theirs}.{letter}.weight",
                shape,
                len(heads) if is_out else 1,
            )
    if sizes.bias_per_layer:
        yield "relpos_bias/rel_embedding", f"layer.0.SelfAttention.{_BIAS}.weight", (sizes.num_heads, sizes.buckets), 1
    last = len(_SUBLAYERS[stack])
    yield "pre_mlp_layer_norm/scale", f"layer.{last}.layer_norm.weight", (width,), 0
    for branch in ("wi_0", "wi_1") if sizes.is_gated else ("wi",):
        yield f"mlp/{branch}/kernel", f"layer.{last}.DenseReluDense.{branch}.weight", (width, mlp_dim), 1
    yield "mlp/wo/kernel", f"layer.{last}.DenseReluDense.wo.weight", (mlp_dim, width), 1
