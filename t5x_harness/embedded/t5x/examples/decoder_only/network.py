"""A decoder-only network, for causal and for prefix language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from t5x.examples.decoder_only import layers
from t5x.examples.decoder_only.layers import Array
from t5x.examples.t5 import network as t5_network


@struct.dataclass
class TransformerConfig:
    """Sizes and settings of the network.

    All but ``num_layers``, the number of layers, are as in :class:`t5x.examples.t5.network.T5Config`.
    """

    vocab_size: int
    dtype: Any = jnp.float32
    emb_dim: int = 512
    num_heads: int = 8
    num_layers: int = 6
    head_dim: int = 64
    mlp_dim: int = 2048
    mlp_activations: Sequence[str] = ("relu",)
    dropout_rate: float = 0.1
    logits_via_embedding: bool = False


class _Blocks(t5_network._Blocks):
    _layers = layers


class DecoderLayer(nn.Module):
    """Self-attention and a feed-forward block, each with a norm before and a residual connection around it.

    ``relative_embedding`` turns lengths into the relative position biases of the attention.
    """

    config: TransformerConfig
    relative_embedding: nn.Module

    @nn.compact
    def __call__(
        self,
        inputs: Array,
        decoder_mask: Array | None = None,
        deterministic: bool = False,
        decode: bool = False,
        max_decode_length: int | None = None,
        prefill: bool = False,
        prefill_lengths: Array | None = None,
    ) -> Array:
        """Transforms float[batch, length, emb_dim], or one token of each sequence when decoding with a cache.

        ``decoder_mask`` is [batch, 1, length, length]; ``max_decode_length``, the number of positions in the cache, is
        needed for one token. ``prefill`` puts the beginning of each sequence, int32[batch] ``prefill_lengths``, into
        the cache.
        """
        blocks = _Blocks(self.config)
        length = (decode and max_decode_length) or inputs.shape[-2]
        bias = self.relative_embedding(length, length, False, decode=decode)

        def attend(x: Array) -> Array:
            return blocks.attention("self_attention")(
                x,
                x,
                decoder_mask,
                bias,
                deterministic=deterministic,
                decode=decode,
                prefill=prefill,
                prefill_lengths=prefill_lengths,
            )

        x = blocks.residual(
            inputs, "pre_self_attention_layer_norm", attend, deterministic, dropout="post_self_attention_dropout"
        )
        return blocks.residual(
            x, "pre_mlp_layer_norm", blocks.mlp(deterministic), deterministic, dropout="post_mlp_dropout"
        )


class Decoder(nn.Module):
    """From tokens to the logits of the next tokens."""

    config: TransformerConfig

    @nn.compact
    def __call__(
        self,
        decoder_input_tokens: Array,
        decoder_target_tokens: Array,
        decoder_segment_ids: Array | None = None,
        decoder_positions: Array | None = None,
        decoder_causal_attention: Array | None = None,
        *,
        enable_dropout: bool = True,
        decode: bool = False,
        max_decode_length: int | None = None,
        prefill: bool | None = None,
        prefill_lengths: Array | None = None,
    ) -> Array:
        """Decodes all positions at once, or one token with a cache: float[batch, length, vocab_size] logits.

        A prefix is put into the cache at once, so attention within it may go in both directions; decoding begins after
        it. Masks are made as in ``t5x.examples.t5.layers.make_decoder_mask``; with ``decode`` there is no padding, and
        positions, which are relative, are not read. The other arguments are those of ``DecoderLayer``.
        """
        del decoder_positions
        t5_network._check_tokens("decoder_input_tokens", decoder_input_tokens)
        cfg, blocks, deterministic = self.config, _Blocks(self.config), not enable_dropout
        mask = None
        if not decode:
            mask = layers.make_decoder_mask(
                decoder_target_tokens,
                dtype=cfg.dtype,
                decoder_causal_attention=decoder_causal_attention,
                decoder_segment_ids=decoder_segment_ids,
            )
        embedding = blocks.token_embedder()
        y = blocks.embed(decoder_input_tokens, embedding, deterministic, dropout="input_dropout")
        arguments = (mask, deterministic, decode, max_decode_length, bool(prefill), prefill_lengths)
        y = blocks.run_layers(self, "decoder", DecoderLayer, cfg.num_layers, y, *arguments)
        y = blocks.dropout(blocks.norm("decoder_norm", y), deterministic, "output_dropout")
        return blocks.logits(y, embedding)


class DecoderWrapper(nn.Module):
    """The decoder, under the name ``decoder`` in the tree of parameters."""

    config: TransformerConfig

    def setup(self) -> None:
        """Makes the decoder."""
        self.decoder = Decoder(self.config, name="decoder")

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        """Decodes, see :meth:`Decoder.__call__`."""
        return self.decoder(*args, **kwargs)
