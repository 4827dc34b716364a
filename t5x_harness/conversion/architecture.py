"""The sizes of a network of the T5 family, as the shapes of its arrays show them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from t5x_harness.conversion.errors import ConversionError

Shape = tuple[int, ...]

_EMBEDDING = "token_embedder/embedding"
_LAYER = re.compile(r"(encoder|decoder)/layers_(\d+)/(.+)")
_SCANNED = re.compile(r"(encoder|decoder)/\1/(.+)")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A network of the T5 family.

    Attributes:
      vocab_size: rows of the embedding.
      emb_dim: size of what is passed between layers.
      num_heads: heads of an attention.
      head_dim: depth of each.
      mlp_dim: size of the hidden layer of feed-forward blocks.
      encoder_layers: layers of the encoder.
      decoder_layers: layers of the decoder.
      is_gated: whether feed-forward blocks multiply two branches, as in T5 1.1.
      own_logits: whether logits come from a layer of their own; otherwise from the embedding, as in T5 1.0.
      buckets: of relative positions.
      bias_per_layer: whether each layer has relative position biases of its own, as in umT5; otherwise all layers of a
        stack share them.
      joined_heads: whether kernels of attention have one axis for heads and their depth, as those of T5X's network t5
        have; those of its scalable_t5 have two.
      scan_axis: the axis of T5X's arrays that is for the layers, where layers are scanned; None where they are not.
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
        """T5X's own network with these arrays."""
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
    """Returns the architecture that arrays of T5X have.

    Only a few arrays are looked at; whether all others fit is for the caller to compare.

    Args:
      shapes: of the parameters, by T5X's names without ``target/``.
      where: what they are of, for messages.

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
    emb_dim = embedding[1]
    scanned = {match[1]: match[2] for name in shapes if (match := _SCANNED.fullmatch(name))}
    if scanned:
        return _scanned(shapes, emb_dim, where)
    layers = {"encoder": 0, "decoder": 0}
    parts_of_first: set[str] = set()
    for name in shapes:
        if match := _LAYER.fullmatch(name):
            layers[match[1]] = max(layers[match[1]], int(match[2]) + 1)
            if (match[1], match[2]) == ("encoder", "0"):
                parts_of_first.add(match[3])
    bias_per_layer = "relpos_bias/rel_embedding" in parts_of_first
    bias = "encoder/layers_0/relpos_bias/rel_embedding" if bias_per_layer else "encoder/relpos_bias/rel_embedding"
    wi = "wi_0" if "mlp/wi_0/kernel" in parts_of_first else "wi"
    heads, buckets = _required(shapes, bias, 2, where)
    query = _required(shapes, "encoder/layers_0/attention/query/kernel", None, where)
    mlp_dim = _required(shapes, f"encoder/layers_0/mlp/{wi}/kernel", 2, where)[1]
    return Architecture(
        vocab_size=embedding[0],
        emb_dim=emb_dim,
        num_heads=heads,
        head_dim=query[2] if len(query) == 3 else query[1] // heads,
        mlp_dim=mlp_dim,
        encoder_layers=layers["encoder"],
        decoder_layers=layers["decoder"],
        is_gated=wi == "wi_0",
        own_logits="decoder/logits_dense/kernel" in shapes,
        buckets=buckets,
        bias_per_layer=bias_per_layer,
        joined_heads=len(query) == 2,
    )


def _scanned(shapes: Mapping[str, Shape], emb_dim: int, where: str) -> Architecture:
    """Returns the architecture of arrays that all layers of a stack share."""
    norm = {s: _required(shapes, f"{s}/{s}/pre_mlp_layer_norm/scale", 2, where) for s in ("encoder", "decoder")}
    axis = 1 if norm["encoder"][0] == emb_dim else 0

    def of_layer(name: str, dimensions: int) -> Shape:
        shape = _required(shapes, f"encoder/encoder/{name}", dimensions, where)
        return shape[:axis] + shape[axis + 1 :]

    heads, buckets = of_layer("relpos_bias/rel_embedding", 3)
    wi = "wi_0" if "encoder/encoder/mlp/wi_0/kernel" in shapes else "wi"
    query = "attention/query/kernel"
    joined = len(_required(shapes, f"encoder/encoder/{query}", None, where)) == 3
    kernel = of_layer(query, 3 if joined else 4)
    return Architecture(
        vocab_size=shapes[_EMBEDDING][0],
        emb_dim=emb_dim,
        num_heads=heads,
        head_dim=kernel[1] // heads if joined else kernel[2],
        mlp_dim=of_layer(f"mlp/{wi}/kernel", 3)[1],
        encoder_layers=norm["encoder"][axis],
        decoder_layers=norm["decoder"][axis],
        is_gated=wi == "wi_0",
        own_logits="decoder/logits_dense/kernel" in shapes,
        buckets=buckets,
        bias_per_layer=True,
        joined_heads=joined,
        scan_axis=axis,
    )


def _required(shapes: Mapping[str, Shape], name: str, dimensions: int | None, where: str) -> Shape:
    """Returns the shape of an array that every network of the family has.

    Raises:
      ConversionError: it is not there, or has another number of dimensions.
    """
    shape = shapes.get(name)
    if shape is None:
        near = sorted(other for other in shapes if other.partition("/")[0] == name.partition("/")[0])[:3]
        raise ConversionError(
            f"{where}: {name} is missing, from which the network's sizes are read; it has {', '.join(near) or 'none'}"
            ". Arrays of another network can be written under their own names: --to safetensors"
        )
    if dimensions is not None and len(shape) != dimensions:
        raise ConversionError(f"{where}: {name} is {list(shape)}, and {dimensions} dimensions are expected")
    return shape
