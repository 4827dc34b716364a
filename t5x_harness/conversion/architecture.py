"""The arrays of a network of the T5 family: its sizes, and each array's name and shape in T5X and in transformers.

A kernel is [in, out] in T5X and [out, in] in transformers; relative position biases are [heads, buckets] in T5X and
[buckets, heads] in transformers. Scanned layers have one array in T5X, and one for each layer in transformers.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from t5x_harness.conversion.request import ConversionError
from t5x_harness.conversion.safetensors_files import Array

Shape = tuple[int, ...]

_EMBEDDING = "token_embedder/embedding"
_LAYER = re.compile(r"(encoder|decoder)/layers_(\d+)/(.+)")
_BIAS, _NORM, _WI_0 = "relpos_bias/rel_embedding", "pre_mlp_layer_norm/scale", "mlp/wi_0/kernel"
_SCANNED = re.compile(r"(encoder|decoder)/\1/(.+)")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A network of the T5 family.

    Attributes:
      vocab_size: the number of rows of the embedding.
      emb_dim: the size of activations between layers.
      num_heads: the number of attention heads.
      head_dim: the size of each head.
      mlp_dim: the size of the hidden layer of feed-forward blocks.
      encoder_layers: the number of layers of the encoder.
      decoder_layers: the number of layers of the decoder.
      is_gated: whether feed-forward blocks multiply two branches, as in T5 1.1.
      own_logits: whether logits come from a separate layer; otherwise they come from the embedding, as in T5 1.0.
      buckets: the number of buckets of relative positions.
      bias_per_layer: whether each layer has its own relative position biases, as in umT5; otherwise all layers of a
        stack share them.
      joined_heads: whether attention kernels have one axis for heads and their size, as in T5X's network t5; the
        kernels of its scalable_t5 have two.
      scan_axis: the axis of T5X's arrays for the layers, if layers are scanned; None otherwise.
    """

    vocab_size: int
    emb_dim: int
    num_heads: int
    head_dim: int
    mlp_dim: int
    encoder_layers: int
    decoder_layers: int
    is_gated: bool
    own_logits: bool
    buckets: int = 32
    bias_per_layer: bool = False
    joined_heads: bool = True
    scan_axis: int | None = None

    @property
    def network(self) -> str:
        """The name of T5X's network with these arrays."""
        return "t5" if self.joined_heads and not self.bias_per_layer else "scalable_t5"

    def __str__(self) -> str:
        return (
            f"{self.encoder_layers} + {self.decoder_layers} layers, width {self.emb_dim}, {self.num_heads} heads of "
            f"{self.head_dim}, feed-forward {self.mlp_dim}{' gated' if self.is_gated else ''}, {self.vocab_size} ids, "
            f"{'logits of their own' if self.own_logits else 'logits from the embedding'}"
        )


def architecture_of(shapes: Mapping[str, Shape], where: str) -> Architecture:
    """Returns the architecture of the network that a checkpoint's T5X arrays belong to.

    This only looks at a few arrays; the caller has to check that all others fit.

    Args:
      shapes: the shapes of the parameters, by T5X's names without ``target/``.
      where: the checkpoint, for messages.

    Raises:
      ConversionError: the network is not an encoder and decoder of the T5 family.
    """
    embedding = shapes.get(_EMBEDDING)
    stacks = {name.partition("/")[0] for name in shapes}
    if embedding is None or len(embedding) != 2 or not {"encoder", "decoder"} <= stacks:
        parts = ", ".join(sorted(stacks)) or "nothing"
        raise ConversionError(
            f"{where}: not a network of the T5 family: it has {parts}; T5, mT5, umT5 and ByT5 have token_embedder, "
            "encoder and decoder. Any network's arrays can be written under their own names: --to safetensors"
        )
    norm = shapes.get(f"encoder/encoder/{_NORM}")
    axis = None if norm is None else 1 if norm[0] == embedding[1] else 0
    layers = {"encoder": 0, "decoder": 0}
    first: dict[str, Shape] = {}  # the encoder's first layer
    for name, shape in shapes.items():
        if match := _LAYER.fullmatch(name):
            stack, in_layer, number, of_one = match[1], match[3], int(match[2]) + 1, shape
        elif axis is not None and len(shape) > axis and (match := _SCANNED.fullmatch(name)):
            stack, in_layer, number, of_one = match[1], match[2], shape[axis], shape[:axis] + shape[axis + 1 :]
        else:
            continue
        layers[stack] = max(layers[stack], number)
        if stack == "encoder" and (number == 1 or axis is not None):
            first[in_layer] = of_one
    bias_per_layer = _BIAS in first
    if not bias_per_layer and f"encoder/{_BIAS}" in shapes:
        first[_BIAS] = shapes[f"encoder/{_BIAS}"]
    wi = "wi_0" if _WI_0 in first else "wi"
    heads, buckets = _required(first, _BIAS, (2,), where)
    query = _required(first, "attention/query/kernel", (2, 3), where)
    return Architecture(
        vocab_size=embedding[0],
        emb_dim=embedding[1],
        num_heads=heads,
        head_dim=query[2] if len(query) == 3 else query[1] // heads,
        mlp_dim=_required(first, f"mlp/{wi}/kernel", (2,), where)[1],
        encoder_layers=layers["encoder"],
        decoder_layers=layers["decoder"],
        is_gated=wi == "wi_0",
        own_logits="decoder/logits_dense/kernel" in shapes,
        buckets=buckets,
        bias_per_layer=bias_per_layer,
        joined_heads=len(query) == 2,
        scan_axis=axis,
    )


def _required(layer: Mapping[str, Shape], name: str, dimensions: tuple[int, ...], where: str) -> Shape:
    """Returns the shape of an array that the encoder's first layer has in every network of the family.

    Raises:
      ConversionError: the array is missing, or has another number of dimensions.
    """
    shape = layer.get(name)
    if shape is None:
        raise ConversionError(
            f"{where}: {name} of the encoder is missing, from which the network's sizes are read; its first layer has "
            f"{', '.join(sorted(layer)[:3]) or 'nothing'}. Arrays of another network can be written under their own "
            "names: --to safetensors"
        )
    if len(shape) not in dimensions:
        expected = " or ".join(map(str, dimensions))
        raise ConversionError(
            f"{where}: {name} of the encoder is {list(shape)}, and {expected} dimensions are expected"
        )
    return shape


EMBEDDING, LOGITS = "shared.weight", "lm_head.weight"

_ATTENTION = {"query": "q", "key": "k", "value": "v", "out": "o"}
_THEIR_BIAS = "SelfAttention.relative_attention_bias.weight"

_SUBLAYERS = {
    "encoder": (("attention", "SelfAttention", "pre_attention_layer_norm"),),
    "decoder": (
        ("self_attention", "SelfAttention", "pre_self_attention_layer_norm"),
        ("encoder_decoder_attention", "EncDecAttention", "pre_cross_attention_layer_norm"),
    ),
}
"""The attentions of a layer in order: T5X's name, transformers' name, and T5X's name for the preceding norm."""


@dataclasses.dataclass(frozen=True)
class ParameterMapping:
    """An array of T5X, and its counterpart in transformers.

    Attributes:
      name: the name in T5X, without ``target/``.
      layer_shape: the shape in T5X, of one layer's part if layers are scanned.
      pieces: the names in transformers: one, or one for each layer if layers are scanned.
      scan_axis: the axis for the layers; None for an array of one layer or outside of layers.
      inputs: the number of leading axes that are contracted with the input of a kernel; 0 for an array that is the same
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
        """Yields the arrays in transformers, as views of T5X's array."""
        for index, name in enumerate(self.pieces):
            part = array if self.scan_axis is None else array[(slice(None),) * self.scan_axis + (index,)]
            if self.inputs:
                part = part.reshape(self.piece_shape[::-1]).T
            yield name, part

    def piece_to_layer(self, piece: Array) -> Array:
        """Converts a transformers array to one layer's part of T5X's array."""
        return piece.T.reshape(self.layer_shape) if self.inputs else piece


def parameters(sizes: Architecture) -> tuple[ParameterMapping, ...]:
    """Returns all arrays of a network, stack by stack."""
    width, vocabulary = sizes.emb_dim, sizes.vocab_size
    found = [ParameterMapping("token_embedder/embedding", (vocabulary, width), (EMBEDDING,))]
    for stack, layers in (("encoder", sizes.encoder_layers), ("decoder", sizes.decoder_layers)):
        for name, in_layer, shape, inputs in _of_one_layer(sizes, stack):
            pieces = tuple(f"{stack}.block.{index}.{in_layer}" for index in range(layers))
            if sizes.scan_axis is not None:
                found.append(ParameterMapping(f"{stack}/{stack}/{name}", shape, pieces, sizes.scan_axis, inputs))
            else:
                found += [
                    ParameterMapping(f"{stack}/layers_{index}/{name}", shape, (piece,), None, inputs)
                    for index, piece in enumerate(pieces)
                ]
        if not sizes.bias_per_layer:
            shape, pieces = (sizes.num_heads, sizes.buckets), (f"{stack}.block.0.layer.0.{_THEIR_BIAS}",)
            found.append(ParameterMapping(f"{stack}/{_BIAS}", shape, pieces, inputs=1))
        found.append(ParameterMapping(f"{stack}/{stack}_norm/scale", (width,), (f"{stack}.final_layer_norm.weight",)))
    if sizes.own_logits:
        found.append(ParameterMapping("decoder/logits_dense/kernel", (width, vocabulary), (LOGITS,), inputs=1))
    return tuple(found)


def _of_one_layer(sizes: Architecture, stack: str) -> Iterator[tuple[str, str, Shape, int]]:
    """Yields T5X's name, transformers' name, T5X's shape and the number of input axes of each array of a layer."""
    width, mlp_dim = sizes.emb_dim, sizes.mlp_dim
    heads = (sizes.num_heads * sizes.head_dim,) if sizes.joined_heads else (sizes.num_heads, sizes.head_dim)
    for index, (ours, theirs, norm) in enumerate(_SUBLAYERS[stack]):
        yield f"{norm}/scale", f"layer.{index}.layer_norm.weight", (width,), 0
        for kernel, letter in _ATTENTION.items():
            shape, inputs = ((*heads, width), len(heads)) if kernel == "out" else ((width, *heads), 1)
            yield f"{ours}/{kernel}/kernel", f"layer.{index}.{theirs}.{letter}.weight", shape, inputs
    if sizes.bias_per_layer:
        yield _BIAS, f"layer.0.{_THEIR_BIAS}", (sizes.num_heads, sizes.buckets), 1
    last = len(_SUBLAYERS[stack])
    yield _NORM, f"layer.{last}.layer_norm.weight", (width,), 0
    for branch in ("wi_0", "wi_1") if sizes.is_gated else ("wi",):
        yield f"mlp/{branch}/kernel", f"layer.{last}.DenseReluDense.{branch}.weight", (width, mlp_dim), 1
    yield "mlp/wo/kernel", f"layer.{last}.DenseReluDense.wo.weight", (mlp_dim, width), 1


_SHOWN = 12


def require_same(
    what: str, found: Mapping[str, tuple[int, ...]], expected: Iterable[tuple[str, tuple[int, ...]]], fix: str
) -> None:
    """Compares names and shapes.

    Args:
      what: the first line of the message.
      found: the shapes of the checkpoint's arrays by name.
      expected: the names and shapes of the network's arrays.
      fix: the smallest fix.

    Raises:
      ConversionError: arrays are missing, unexpected or of another shape; the message names each.
    """
    wanted = dict(expected)
    missing = [f"{name} {list(shape)}" for name, shape in wanted.items() if name not in found]
    unexpected = [f"{name} {list(shape)}" for name, shape in sorted(found.items()) if name not in wanted]
    both = ((name, found[name], shape) for name, shape in wanted.items() if name in found)
    reshaped = [f"{name} is {list(has)}, expected {list(wants)}" for name, has, wants in both if has != wants]
    if missing or unexpected or reshaped:
        lists = {"missing": missing, "unexpected": unexpected, "of another shape": reshaped}
        lines = [line for title, names in lists.items() for line in _listed(title, names)]
        raise ConversionError("\n  ".join([what, *lines, f"fix: {fix}"]))


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yields a heading with the number of lines, followed by the first few lines."""
    if lines:
        yield f"{title}: {len(lines)}"
        yield from (f"  {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN} more"
