"""The T5 1.1 encoder-decoder network. T5 1.0, mT5 and ByT5 are this network with other settings.

From Raffel et al. 2019, arXiv:1910.10683.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from t5x.examples.t5 import layers
from t5x.examples.t5.layers import Array


@struct.dataclass
class T5Config:
    """The sizes and settings of the network.

    Attributes:
        vocab_size: number of tokens, padded to a multiple of 128 so that the vocabulary shards evenly.
        dtype: the dtype of computations; parameters are float32.
        emb_dim: size of token vectors and of activations between layers.
        head_dim: depth of each attention head.
        mlp_dim: size of the hidden layer of the feed-forward blocks.
        mlp_activations: activations of the feed-forward blocks: ('relu',) for T5 1.0, ('gelu', 'linear') for T5 1.1.
        dropout_rate: the rate of all dropouts.
        logits_via_embedding: whether logits come from the token vectors (T5 1.0) or from a separate layer.
        float32_attention_logits: whether to compute attention logits in float32 whatever ``dtype`` is.
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


def _check_tokens(name: str, tokens: Array) -> None:
    """Raises an AssertionError unless tokens have the shape [batch, length]."""
    if tokens.ndim != 2:
        raise AssertionError(f"{name} must have shape [batch, length], got {tokens.shape}")


class _Blocks:
    """The parts of a stack. Other networks derive their own parts from it."""

    _layers: Any = layers

    def __init__(self, config: Any) -> None:
        self.config = config

    def token_embedder(self) -> layers.Embed:
        """Makes the table of token vectors, which may also give logits."""
        cfg = self.config
        return layers.Embed(
            num_embeddings=cfg.vocab_size,
            features=cfg.emb_dim,
            dtype=cfg.dtype,
            attend_dtype=jnp.float32,  # float32 logits, for a stable softmax
            embedding_init=nn.initializers.normal(stddev=1.0),
            one_hot=True,
            name="token_embedder",
        )

    def relative_positions(self) -> Any:
        """Makes position biases, which depend on how far apart query and key are."""
        return self._layers.RelativePositionBiases(
            num_buckets=32,
            max_distance=128,
            num_heads=self.config.num_heads,
            dtype=self.config.dtype,
            embedding_init=nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"),
            name="relpos_bias",
        )

    def attention(self, name: str) -> Any:
        """Makes multi-head attention."""
        cfg = self.config
        return self._layers.MultiHeadDotProductAttention(
            num_heads=cfg.num_heads,
            head_dim=cfg.head_dim,
            dtype=cfg.dtype,
            dropout_rate=cfg.dropout_rate,
            float32_logits=getattr(cfg, "float32_attention_logits", False),  # a setting of T5Config only
            name=name,
        )

    def mlp(self, deterministic: bool) -> Callable[[Array], Array]:
        """Makes a feed-forward block."""
        cfg = self.config
        mlp = self._layers.MlpBlock(
            intermediate_dim=cfg.mlp_dim,
            activations=cfg.mlp_activations,
            intermediate_dropout_rate=cfg.dropout_rate,
            dtype=cfg.dtype,
            name="mlp",
        )
        return functools.partial(mlp, deterministic=deterministic)

    def norm(self, name: str, x: Array) -> Array:
        """Divides float[..., emb_dim] by its root mean square."""
        return layers.LayerNorm(dtype=self.config.dtype, name=name)(x)

    def dropout(self, x: Array, deterministic: bool, name: str | None = None) -> Array:
        """Drops features, each at all positions of a sequence together."""
        return nn.Dropout(self.config.dropout_rate, broadcast_dims=(-2,), name=name)(x, deterministic=deterministic)

    def embed(self, tokens: Array, embedding: Any, deterministic: bool, dropout: str | None = None) -> Array:
        """Looks up int[batch, length] tokens: float[batch, length, emb_dim]."""
        return self.dropout(embedding(tokens.astype(jnp.int32)), deterministic, dropout).astype(self.config.dtype)

    def residual(
        self, x: Array, norm: str, block: Callable[[Array], Array], deterministic: bool, dropout: str | None = None
    ) -> Array:
        """Adds a block's output for the normed float[batch, length, emb_dim]."""
        return x + self.dropout(block(self.norm(norm, x)), deterministic, dropout)

    def encoder_layer(self, x: Array, mask: Array | None, bias: Array, deterministic: bool) -> Array:
        """Transforms float[batch, length, emb_dim]: self-attention, then a feed-forward block."""

        def attend(x: Array) -> Array:
            return self.attention("attention")(x, x, mask, bias, deterministic=deterministic)

        x = self.residual(x, "pre_attention_layer_norm", attend, deterministic)
        return self.residual(x, "pre_mlp_layer_norm", self.mlp(deterministic), deterministic)

    def decoder_layer(
        self,
        x: Array,
        encoded: Array,
        mask: Array | None,
        encoder_mask: Array | None,
        bias: Array,
        deterministic: bool,
        decode: bool,
    ) -> Array:
        """Transforms float[batch, length, emb_dim]: self-attention, attention to the encoder, a feed-forward block."""

        def attend(x: Array) -> Array:
            attention = self.attention("self_attention")
            return attention(x, x, mask, bias, deterministic=deterministic, decode=decode)

        def attend_to_encoder(x: Array) -> Array:
            attention = self.attention("encoder_decoder_attention")
            return attention(x, encoded, encoder_mask, deterministic=deterministic)

        x = self.residual(x, "pre_self_attention_layer_norm", attend, deterministic)
        x = self.residual(x, "pre_cross_attention_layer_norm", attend_to_encoder, deterministic)
        return self.residual(x, "pre_mlp_layer_norm", self.mlp(deterministic), deterministic)

    def run_layers(
        self, stack: nn.Module, name: str, layer: type[nn.Module], number: int, x: Array, *arguments: Any
    ) -> Array:
        """Passes float[batch, length, emb_dim] through the layers of a stack, which share their position biases."""
        relative_positions = self.relative_positions()
        for i in range(number):
            x = layer(self.config, relative_positions, name=f"layers_{i}")(x, *arguments)
        return x

    def logits(self, y: Array, embedding: layers.Embed) -> Array:
        """Turns float[batch, length, emb_dim] into float[batch, length, vocab_size]."""
        if self.config.logits_via_embedding:
            # The token vectors have unit variance, so their products grow with the square root of the size.
            return embedding.attend(y) / jnp.sqrt(y.shape[-1])
        return self._layers.DenseGeneral(
            self.config.vocab_size, dtype=jnp.float32, kernel_axes=("embed", "vocab"), name="logits_dense"
        )(y)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward block, each with a norm before and a residual connection around it.

    ``relative_embedding`` turns lengths into the relative position biases of the attention.
    """

    config: T5Config
    relative_embedding: nn.Module

    @nn.compact
    def __call__(self, inputs: Array, encoder_mask: Array | None = None, deterministic: bool = False) -> Array:
        """Transforms float[batch, length, emb_dim] under a mask [batch, 1, length, length]."""
        length = inputs.shape[-2]
        bias = self.relative_embedding(length, length, True)
        return _Blocks(self.config).encoder_layer(inputs, encoder_mask, bias, deterministic)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the encoder and a feed-forward block, each with a norm and a residual connection.

    ``relative_embedding`` turns lengths into the relative position biases of the self-attention.
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
        """Transforms float[batch, length, emb_dim], or one token of each sequence when decoding with a cache.

        ``encoded`` is the encoder's output, float[batch, encoder length, emb_dim]; the masks are [batch, 1, length,
        length] and [batch, 1, length, encoder length]. ``max_decode_length``, the number of positions in the cache, is
        needed for one token.
        """
        length = (decode and max_decode_length) or inputs.shape[-2]
        bias = self.relative_embedding(length, length, False)
        return _Blocks(self.config).decoder_layer(
            inputs, encoded, decoder_mask, encoder_decoder_mask, bias, deterministic, decode
        )


class Encoder(nn.Module):
    """Maps tokens to vectors that know their context; ``shared_embedding`` has the token vectors."""

    config: T5Config
    shared_embedding: nn.Module

    _blocks, _layer = _Blocks, EncoderLayer

    @nn.compact
    def __call__(
        self, encoder_input_tokens: Array, encoder_mask: Array | None = None, deterministic: bool = False
    ) -> Array:
        """Encodes int[batch, length] tokens under a mask [batch, 1, length, length]: float[batch, length, emb_dim]."""
        _check_tokens("encoder_input_tokens", encoder_input_tokens)
        blocks = self._blocks(self.config)
        x = blocks.embed(encoder_input_tokens, self.shared_embedding, deterministic)
        number = self.config.num_encoder_layers
        x = blocks.run_layers(self, "encoder", self._layer, number, x, encoder_mask, deterministic)
        x = blocks.norm("encoder_norm", x)
        # Unlike all other dropouts, this one is independent at every position.
        return nn.Dropout(self.config.dropout_rate)(x, deterministic=deterministic)


class Decoder(nn.Module):
    """Maps target tokens and the encoder's output to logits; ``shared_embedding`` has the token vectors."""

    config: T5Config
    shared_embedding: nn.Module

    _blocks, _layer = _Blocks, DecoderLayer

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
        """Decodes all positions at once, or one token with a cache; the arguments are those of ``DecoderLayer``.

        ``decoder_input_tokens`` are the int[batch, length] targets shifted right. ``decoder_positions`` are not read:
        positions are relative.

        Returns:
            float[batch, length, vocab_size] logits of the next tokens, float32 unless they come from the token vectors
            with another attend dtype.
        """
        del decoder_positions
        _check_tokens("decoder_input_tokens", decoder_input_tokens)
        blocks = self._blocks(self.config)
        y = blocks.embed(decoder_input_tokens, self.shared_embedding, deterministic)
        arguments = (encoded, decoder_mask, encoder_decoder_mask, deterministic, decode, max_decode_length)
        y = blocks.run_layers(self, "decoder", self._layer, self.config.num_decoder_layers, y, *arguments)
        y = blocks.dropout(blocks.norm("decoder_norm", y), deterministic)
        return blocks.logits(y, self.shared_embedding)


class Transformer(nn.Module):
    """The whole network."""

    config: T5Config

    _encoder, _decoder = Encoder, Decoder

    def setup(self) -> None:
        """Makes the token vectors, the encoder and the decoder."""
        cfg = self.config
        self.shared_embedding = _Blocks(cfg).token_embedder()
        self.encoder = self._encoder(cfg, self.shared_embedding)
        self.decoder = self._decoder(cfg, self.shared_embedding)

    def encode(
        self, encoder_input_tokens: Array, encoder_segment_ids: Array | None = None, enable_dropout: bool = True
    ) -> Array:
        """Encodes int[batch, length] tokens, of which zeros are padding: float[batch, length, emb_dim].

        ``encoder_segment_ids``, int[batch, length], gives the packed sequence of each position.
        """
        _check_tokens("encoder_input_tokens", encoder_input_tokens)
        is_token = encoder_input_tokens > 0
        mask = layers.combine_masks(
            layers.make_attention_mask(is_token, is_token),
            self._within_segments(encoder_segment_ids, encoder_segment_ids),
            dtype=self.config.dtype,
        )
        return self.encoder(encoder_input_tokens, mask, deterministic=not enable_dropout)

    def decode(
        self,
        encoded: Array,
        encoder_input_tokens: Array,
        decoder_input_tokens: Array,
        decoder_target_tokens: Array,
        encoder_segment_ids: Array | None = None,
        decoder_segment_ids: Array | None = None,
        decoder_positions: Array | None = None,
        enable_dropout: bool = True,
        decode: bool = False,
        max_decode_length: int | None = None,
    ) -> Array:
        """Decodes all positions at once, or one token with a cache: float[batch, length, vocab_size] logits.

        ``encoded`` is the result of ``encode``, and ``encoder_input_tokens`` shows which of it is padding.
        ``decoder_input_tokens`` are the targets shifted right; zeros in ``decoder_target_tokens`` are padding, of which
        there is none with ``decode``. ``max_decode_length``, the number of positions in the cache, is needed to decode
        one token.

        Raises:
            ValueError: decoding token by token from packed sequences.
        """
        if decode and encoder_segment_ids is not None:
            raise ValueError(
                "sequences must not be packed when decoding token by token, but encoder_segment_ids were given; set "
                "pack = False for the dataset that is decoded"
            )
        dtype = self.config.dtype
        if decode:
            decoder_mask = None
            query_is_token = jnp.ones_like(decoder_target_tokens)
        else:
            decoder_mask = layers.make_decoder_mask(
                decoder_target_tokens, dtype=dtype, decoder_segment_ids=decoder_segment_ids
            )
            query_is_token = decoder_target_tokens > 0
        cross_mask = layers.combine_masks(
            layers.make_attention_mask(query_is_token, encoder_input_tokens > 0),
            self._within_segments(decoder_segment_ids, encoder_segment_ids),
            dtype=dtype,
        )
        return self.decoder(
            encoded,
            decoder_input_tokens,
            decoder_positions=decoder_positions,
            decoder_mask=decoder_mask,
            encoder_decoder_mask=cross_mask,
            deterministic=not enable_dropout,
            decode=decode,
            max_decode_length=max_decode_length,
        )

    def __call__(
        self,
        encoder_input_tokens: Array,
        decoder_input_tokens: Array,
        decoder_target_tokens: Array,
        encoder_segment_ids: Array | None = None,
        decoder_segment_ids: Array | None = None,
        encoder_positions: Array | None = None,
        decoder_positions: Array | None = None,
        *,
        enable_dropout: bool = True,
        decode: bool = False,
    ) -> Array:
        """Encodes and decodes: the forward pass of training, or with ``decode`` the one that makes the cache.

        The arguments are those of ``encode`` and ``decode``; positions are not read, because T5's are relative.
        """
        del encoder_positions
        encoded = self.encode(encoder_input_tokens, encoder_segment_ids, enable_dropout)
        return self.decode(
            encoded,
            encoder_input_tokens,
            decoder_input_tokens,
            decoder_target_tokens,
            encoder_segment_ids=encoder_segment_ids,
            decoder_segment_ids=decoder_segment_ids,
            decoder_positions=decoder_positions,
            enable_dropout=enable_dropout,
            decode=decode,
        )

    def _within_segments(self, query_ids: Array | None, key_ids: Array | None) -> Array | None:
        """Makes a mask that keeps packed sequences apart; None if they are not packed."""
        if key_ids is None:
            return None
        return layers.make_attention_mask(query_ids, key_ids, jnp.equal, dtype=self.config.dtype)
