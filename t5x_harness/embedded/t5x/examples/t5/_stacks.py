"""The settings of T5, and its encoder and decoder stacks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from t5x.examples.t5 import layers
from t5x.examples.t5._types import Array

_Dropout = Callable[[Array], Array]


@struct.dataclass
class T5Config:
    """Sizes and settings of the network.

    Attributes:
      vocab_size: Number of tokens, padded to a multiple of 128 so that the vocabulary shards evenly.
      dtype: In what to compute; parameters are float32.
      emb_dim: Size of token vectors and of all that is passed between layers.
      num_heads: Attention heads.
      num_encoder_layers: Layers of the encoder.
      num_decoder_layers: Layers of the decoder.
      head_dim: Depth of each head.
      mlp_dim: Size of the hidden layer of the feed-forward blocks.
      mlp_activations: Activations of the feed-forward blocks: ('relu',) for T5 1.0, ('gelu', 'linear') for T5 1.1.
      dropout_rate: Of all dropouts.
      logits_via_embedding: Whether logits come from the token vectors (T5 1.0) or from a layer of their own.
      float32_attention_logits: Whether to compute attention logits in float32 whatever `dtype` is.
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
    float32_attention_logits: bool = False


def _dropout(config: T5Config, deterministic: bool) -> _Dropout:
    """Makes dropouts that drop a feature at all positions of a sequence at once; each call is one of its own."""
    return lambda x: nn.Dropout(config.dropout_rate, broadcast_dims=(-2,))(x, deterministic=deterministic)


def _attention(config: T5Config, name: str) -> layers.MultiHeadDotProductAttention:
    return layers.MultiHeadDotProductAttention(
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        dtype=config.dtype,
        dropout_rate=config.dropout_rate,
        float32_logits=config.float32_attention_logits,
        name=name,
    )


def _mlp(config: T5Config) -> layers.MlpBlock:
    return layers.MlpBlock(
        intermediate_dim=config.mlp_dim,
        activations=config.mlp_activations,
        intermediate_dropout_rate=config.dropout_rate,
        dtype=config.dtype,
        name="mlp",
    )


def _relative_positions(config: T5Config) -> layers.RelativePositionBiases:
    """Makes the biases that all layers of a stack share."""
    return layers.RelativePositionBiases(
        num_buckets=32,
        max_distance=128,
        num_heads=config.num_heads,
        dtype=config.dtype,
        embedding_init=nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"),
        name="relpos_bias",
    )


def check_tokens(name: str, tokens: Array) -> None:
    """Raises AssertionError unless `tokens` has shape [batch, length]."""
    if tokens.ndim != 2:
        raise AssertionError(f"{name} must have shape [batch, length], got {tokens.shape}")


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward block, each with a norm before and a residual connection around it.

    Attributes:
      config: Settings of the network.
      relative_embedding: From lengths to the relative position biases of the attention.
    """

    config: T5Config
    relative_embedding: nn.Module

    @nn.compact
    def __call__(self, inputs: Array, encoder_mask: Array | None = None, deterministic: bool = False) -> Array:
        """Transforms float[batch, length, emb_dim].

        Args:
          inputs: float[batch, length, emb_dim].
          encoder_mask: [batch, 1, length, length].
          deterministic: Turns dropout off.

        Returns:
          float[batch, length, emb_dim].
        """
        dropout = _dropout(self.config, deterministic)
        norm = functools.partial(layers.LayerNorm, dtype=self.config.dtype)
        length = inputs.shape[-2]
        bias = self.relative_embedding(length, length, True)

        x = norm(name="pre_attention_layer_norm")(inputs)
        x = _attention(self.config, "attention")(x, x, encoder_mask, bias, deterministic=deterministic)
        attended = inputs + dropout(x)

        x = norm(name="pre_mlp_layer_norm")(attended)
        return attended + dropout(_mlp(self.config)(x, deterministic=deterministic))


class DecoderLayer(nn.Module):
    """Self-attention, attention to the encoder and a feed-forward block, each with a norm and a residual connection.

    Attributes:
      config: Settings of the network.
      relative_embedding: From lengths to the relative position biases of the self-attention.
    """

    config: T5Config
    relative_embedding: nn.Module

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
    ) -> Array:
        """Transforms float[batch, length, emb_dim].

        Args:
          inputs: float[batch, length, emb_dim]; the length is 1 when decoding with a cache.
          encoded: float[batch, encoder length, emb_dim], the encoder's output.
          decoder_mask: [batch, 1, length, length].
          encoder_decoder_mask: [batch, 1, length, encoder length].
          deterministic: Turns dropout off.
          decode: Whether to decode token by token with a cache.
          max_decode_length: How many positions the cache has; needed when decoding one token.

        Returns:
          float[batch, length, emb_dim].
        """
        dropout = _dropout(self.config, deterministic)
        norm = functools.partial(layers.LayerNorm, dtype=self.config.dtype)
        length = (decode and max_decode_length) or inputs.shape[-2]
        bias = self.relative_embedding(length, length, False)

        x = norm(name="pre_self_attention_layer_norm")(inputs)
        self_attention = _attention(self.config, "self_attention")
        x = self_attention(x, x, decoder_mask, bias, deterministic=deterministic, decode=decode)
        attended = inputs + dropout(x)

        x = norm(name="pre_cross_attention_layer_norm")(attended)
        cross_attention = _attention(self.config, "encoder_decoder_attention")
        x = cross_attention(x, encoded, encoder_decoder_mask, deterministic=deterministic)
        informed = attended + dropout(x)

        x = norm(name="pre_mlp_layer_norm")(informed)
        return informed + dropout(_mlp(self.config)(x, deterministic=deterministic))


class Encoder(nn.Module):
    """From tokens to vectors that know their context.

    Attributes:
      config: Settings of the network.
      shared_embedding: The token vectors, shared with the decoder.
    """

    config: T5Config
    shared_embedding: nn.Module

    @nn.compact
    def __call__(
        self, encoder_input_tokens: Array, encoder_mask: Array | None = None, deterministic: bool = False
    ) -> Array:
        """Encodes sequences.

        Args:
          encoder_input_tokens: int[batch, length].
          encoder_mask: [batch, 1, length, length].
          deterministic: Turns dropout off.

        Returns:
          float[batch, length, emb_dim].
        """
        check_tokens("encoder_input_tokens", encoder_input_tokens)
        cfg = self.config
        relative_positions = _relative_positions(cfg)
        x = self.shared_embedding(encoder_input_tokens.astype(jnp.int32))
        x = _dropout(cfg, deterministic)(x).astype(cfg.dtype)
        for i in range(cfg.num_encoder_layers):
            x = EncoderLayer(cfg, relative_positions, name=f"layers_{i}")(x, encoder_mask, deterministic)
        x = layers.LayerNorm(dtype=cfg.dtype, name="encoder_norm")(x)
        # Unlike all other dropouts, this one drops at every position anew.
        return nn.Dropout(cfg.dropout_rate)(x, deterministic=deterministic)


class Decoder(nn.Module):
    """From target tokens and the encoder's output to the logits of the next tokens.

    Attributes:
      config: Settings of the network.
      shared_embedding: The token vectors, shared with the encoder.
    """

    config: T5Config
    shared_embedding: nn.Module

    @nn.compact
    def __call__(
        self,
        encoded: Array,
        decoder_input_tokens: Array,
        decoder_positions: Array | None = None,
        decoder_mask: Array | None = None,
        encoder_decoder_mask: Array | None = None,
        deterministic: bool = False,
        decode: bool = False,
        max_decode_length: int | None = None,
    ) -> Array:
        """Decodes all positions at once, or one token with a cache.

        Args:
          encoded: float[batch, encoder length, emb_dim].
          decoder_input_tokens: int[batch, length], the targets shifted right.
          decoder_positions: Not read: positions are relative. Networks share this argument.
          decoder_mask: [batch, 1, length, length].
          encoder_decoder_mask: [batch, 1, length, encoder length].
          deterministic: Turns dropout off.
          decode: Whether to decode token by token with a cache.
          max_decode_length: How many positions the cache has; needed when decoding one token.

        Returns:
          float[batch, length, vocab_size], float32 unless they come from the token vectors of another attend dtype.
        """
        del decoder_positions
        check_tokens("decoder_input_tokens", decoder_input_tokens)
        cfg = self.config
        dropout = _dropout(cfg, deterministic)
        relative_positions = _relative_positions(cfg)
        y = self.shared_embedding(decoder_input_tokens.astype(jnp.int32))
        y = dropout(y).astype(cfg.dtype)
        for i in range(cfg.num_decoder_layers):
            y = DecoderLayer(cfg, relative_positions, name=f"layers_{i}")(
                y,
                encoded,
                decoder_mask=decoder_mask,
                encoder_decoder_mask=encoder_decoder_mask,
                deterministic=deterministic,
                decode=decode,
                max_decode_length=max_decode_length,
            )
        y = dropout(layers.LayerNorm(dtype=cfg.dtype, name="decoder_norm")(y))
        if cfg.logits_via_embedding:
            # The token vectors have unit variance, so their products grow with the square root of the size.
            return self.shared_embedding.attend(y) / jnp.sqrt(y.shape[-1])
        logits = layers.DenseGeneral(
            cfg.vocab_size, dtype=jnp.float32, kernel_axes=("embed", "vocab"), name="logits_dense"
        )
        return logits(y)
