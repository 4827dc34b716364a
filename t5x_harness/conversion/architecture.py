"""Reads the sizes of a network of the T5 family from the shapes of its arrays."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from t5x_harness.conversion.errors import ConversionError

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
      num_heads: the number of heads of an attention.
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

    def layers(self, stack: str) -> int:
        """Returns the number of layers of ``encoder`` or ``decoder``."""
        return self.encoder_layers if stack == "encoder" else self.decoder_layers

    def __str__(self) -> str:
        return (
            f"{self.encoder_layers} + {self.decoder_layers} layers, width {self.emb_dim}, {self.num_heads} heads of "
            f"{self.head_dim}, feed-forward {self.mlp_dim}{' gated' if self.is_gated else ''}, {self.vocab_size} ids, "
            f"{'logits of their own' if self.own_logits else 'logits from the embedding'}"
        )


def architecture_of(shapes: Mapping[str, Shape], where: str) -> Architecture:
    """Returns the architecture of the network that T5X arrays belong to.

    This looks at a few arrays only; the caller has to check that all others fit.

    Args:
      shapes: the shapes of the parameters, by T5X's names without ``target/``.
      where: the checkpoint, for messages.

    Raises:
      ConversionError: it is not an encoder and decoder of the T5 family.
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
      ConversionError: it is missing, or has another number of dimensions.
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
