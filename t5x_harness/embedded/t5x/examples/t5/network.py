"""The T5 1.1 encoder-decoder network. T5 1.0, mT5 and ByT5 are this network with other settings."""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn
from t5x._public import publish
from t5x.examples.t5 import layers
from t5x.examples.t5._stacks import Decoder, DecoderLayer, Encoder, EncoderLayer, T5Config, check_tokens
from t5x.examples.t5._types import Array

__all__ = ["Decoder", "DecoderLayer", "Encoder", "EncoderLayer", "T5Config", "Transformer"]


class Transformer(nn.Module):
    """The whole network.

    Attributes:
      config: Sizes and settings.
    """

    config: T5Config

    def setup(self) -> None:
        """Makes the token vectors, the encoder and the decoder."""
        cfg = self.config
        self.shared_embedding = layers.Embed(
            num_embeddings=cfg.vocab_size,
            features=cfg.emb_dim,
            dtype=cfg.dtype,
            attend_dtype=jnp.float32,  # float32 logits, for a stable softmax
            embedding_init=nn.initializers.normal(stddev=1.0),
            one_hot=True,
            name="token_embedder",
        )
        self.encoder = Encoder(cfg, self.shared_embedding)
        self.decoder = Decoder(cfg, self.shared_embedding)

    def encode(
        self, encoder_input_tokens: Array, encoder_segment_ids: Array | None = None, enable_dropout: bool = True
    ) -> Array:
        """Encodes sequences.

        Args:
          encoder_input_tokens: int[batch, length]; zeros are padding.
          encoder_segment_ids: int[batch, length], which packed sequence a position belongs to.
          enable_dropout: Whether to drop out.

        Returns:
          float[batch, length, emb_dim].
        """
        check_tokens("encoder_input_tokens", encoder_input_tokens)
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
        """Decodes all positions at once, or one token with a cache.

        Args:
          encoded: float[batch, encoder length, emb_dim], from `encode`.
          encoder_input_tokens: int[batch, encoder length]; says what of `encoded` is padding.
          decoder_input_tokens: int[batch, length], the targets shifted right.
          decoder_target_tokens: int[batch, length]; zeros are padding.
          encoder_segment_ids: int[batch, encoder length], which packed sequence a position belongs to.
          decoder_segment_ids: int[batch, length], the same of the targets.
          decoder_positions: Positions within packed sequences.
          enable_dropout: Whether to drop out.
          decode: Whether to decode token by token with a cache. There is no padding then.
          max_decode_length: How many positions the cache has; needed when decoding one token.

        Returns:
          float[batch, length, vocab_size] logits.

        Raises:
          ValueError: Decoding token by token from packed sequences.
        """
        if decode and encoder_segment_ids is not None:
            raise ValueError(
                "sequences must not be packed when decoding token by token, but encoder_segment_ids were given; set "
                "pack = False for the dataset that is decoded"
            )
        dtype = self.config.dtype
        if decode:
            decoder_mask = None
            asks = jnp.ones_like(decoder_target_tokens)
        else:
            decoder_mask = layers.make_decoder_mask(
                decoder_target_tokens, dtype=dtype, decoder_segment_ids=decoder_segment_ids
            )
            asks = decoder_target_tokens > 0
        cross_mask = layers.combine_masks(
            layers.make_attention_mask(asks, encoder_input_tokens > 0),
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
        """Encodes and decodes: the forward pass of training.

        Args:
          encoder_input_tokens: int[batch, encoder length]; zeros are padding.
          decoder_input_tokens: int[batch, length], the targets shifted right.
          decoder_target_tokens: int[batch, length]; zeros are padding.
          encoder_segment_ids: int[batch, encoder length], which packed sequence a position belongs to.
          decoder_segment_ids: int[batch, length], the same of the targets.
          encoder_positions: Not read: positions are relative. Networks share this argument.
          decoder_positions: Not read either.
          enable_dropout: Whether to drop out.
          decode: Whether to make the cache for decoding.

        Returns:
          float[batch, length, vocab_size] logits.
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


publish(__name__)
