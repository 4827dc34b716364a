"""The T5 1.1 network for large models: the layers of a stack are scanned, and may be recomputed for gradients.

All layers of a stack have one set of parameters with an axis for the layers, so the compiler sees a single layer
whatever their number. Every layer has its own relative position biases, as in umT5 (Chung et al. 2023,
arXiv:2304.09151).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.linen import partitioning
from t5x.examples.scalable_t5 import layers
from t5x.examples.scalable_t5.layers import Array
from t5x.examples.t5 import network as t5_network

with_sharding_constraint = partitioning.with_sharding_constraint
scan_with_axes = partitioning.scan_with_axes
remat = partitioning.remat
ScanIn = partitioning.ScanIn


@struct.dataclass
class T5Config:
    """Sizes and settings of the network.

    Those up to ``logits_via_embedding`` are as in :class:`t5x.examples.t5.network.T5Config`.

    Attributes:
        remat_policy: what is recomputed for the gradients instead of stored: 'none'; 'full', all of a layer; or
            'minimal', all but matrix products without batch dimensions.
        scan_layers: whether to scan over the layers. Otherwise each has its own parameters, named as in T5.
        param_scan_axis: the axis of the parameters that counts the layers.
    """

    vocab_size: int
    dtype: Any = jnp.float32
    emb_dim: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    head_dim: int = 64
    mlp_dim: int = 2048
    mlp_activations: Sequence[str] = ("relu",)
    dropout_rate: float = 0.1
    logits_via_embedding: bool = False
    remat_policy: str = "none"
    scan_layers: bool = True
    param_scan_axis: int = 1


def _sharded(x: Array) -> Array:
    return with_sharding_constraint(x, ("batch", "length", "embed"))


class _Blocks(t5_network._Blocks):
    """The parts of T5, with activations sharded by their logical axes between blocks."""

    _layers = layers

    def residual(
        self, x: Array, norm: str, block: Callable[[Array], Array], deterministic: bool, dropout: str | None = None
    ) -> Array:
        """Adds a block's output for the normed float[batch, length, emb_dim]."""
        return _sharded(super().residual(_sharded(x), norm, lambda y: block(_sharded(y)), deterministic, dropout))

    def position_bias(self, length: int, bidirectional: bool) -> Array:
        """Computes the float[1, num_heads, length, length] biases of one layer."""
        bias: Array = self.relative_positions()(length, length, bidirectional)
        return bias

    def result(self, x: Array) -> Any:
        """Returns a layer's result in the form of its caller: for a scan, a pair of the carry and None."""
        return (x, None) if self.config.scan_layers else x

    def run_layers(
        self, stack: nn.Module, name: str, layer: type[nn.Module], number: int, x: Array, *arguments: Any
    ) -> Array:
        """Passes float[batch, length, emb_dim] through the layers of ``stack``; all get the same further arguments.

        ``name`` is the name of the scanned layers; switches are the last arguments.
        """
        cfg = self.config
        if cfg.remat_policy not in (None, "none"):
            keep_products = jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims
            switches = [i for i, value in enumerate(arguments, start=1) if isinstance(value, bool | int | None)]
            layer = remat(
                layer,
                prevent_cse=not cfg.scan_layers,  # a scan prevents it already
                policy=keep_products if cfg.remat_policy == "minimal" else None,
                static_argnums=switches,
            )
        if not cfg.scan_layers:
            for i in range(number):
                x = layer(cfg, name=f"layers_{i}")(x, *arguments)
            return x
        axis = cfg.param_scan_axis
        scanned = scan_with_axes(
            layer,
            variable_axes={
                # The axis is added to the logical axes once, when the parameters are made.
                "params": axis if stack.is_mutable_collection("params") else ScanIn(axis),
                "cache": 0,
            },
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast,) * len(arguments),
            length=number,
            axis_name="layers",
        )
        x, _ = scanned(config=cfg, name=name)(x, *arguments)
        return x


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward block, with relative position biases of its own."""

    config: T5Config

    @nn.compact
    def __call__(self, inputs: Array, encoder_mask: Array | None = None, deterministic: bool = False) -> Any:
        """Transforms sequences as T5's does; if layers are scanned, the result is a pair of them and None."""
        blocks = _Blocks(self.config)
        bias = blocks.position_bias(inputs.shape[-2], bidirectional=True)
        return blocks.result(blocks.encoder_layer(inputs, encoder_mask, bias, deterministic))


class DecoderLayer(nn.Module):
    """Self-attention, attention to the encoder and a feed-forward block, with relative position biases of its own."""

    config: T5Config

    @nn.compact
    def __call__(
        self,
        inputs: Array,
        encoded: Array,
        decoder_mask: Array | None = None,
        encoder_decoder_mask: Array | None = None,
        deterministic: bool = False,
        decode: bool = False,
        max_decode_length: int | None = None,
    ) -> Any:
        """Transforms sequences as T5's does; if layers are scanned, the result is a pair of them and None."""
        blocks = _Blocks(self.config)
        length = (decode and max_decode_length) or inputs.shape[-2]
        bias = blocks.position_bias(length, bidirectional=False)
        return blocks.result(
            blocks.decoder_layer(inputs, encoded, decoder_mask, encoder_decoder_mask, bias, deterministic, decode)
        )


class Encoder(t5_network.Encoder):
    """From tokens to vectors that know their context, see :class:`t5x.examples.t5.network.Encoder`."""

    config: T5Config

    _blocks, _layer = _Blocks, EncoderLayer


class Decoder(t5_network.Decoder):
    """From target tokens and the encoder's output to logits, see :class:`t5x.examples.t5.network.Decoder`."""

    config: T5Config

    _blocks, _layer = _Blocks, DecoderLayer


class Transformer(t5_network.Transformer):
    """The whole network, see :class:`t5x.examples.t5.network.Transformer`.

    Models look at ``scan_layers`` to know whether the caches for decoding have an axis of layers.
    """

    config: T5Config
    scan_layers: bool = struct.field(init=False)

    _encoder, _decoder = Encoder, Decoder

    def __post_init__(self) -> None:
        """Takes ``scan_layers`` over from the settings."""
        super().__post_init__()
        object.__setattr__(self, "scan_layers", self.config.scan_layers)  # a frozen dataclass
