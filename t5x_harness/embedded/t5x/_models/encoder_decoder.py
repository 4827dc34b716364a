"""Sequence-to-sequence models."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import seqio
from absl import logging
from flax import core as flax_core
from t5x import decoding
from t5x._models.base import Batch, DecodeFnCallable, PyTree
from t5x._models.transformer import (
    BaseTransformerModel,
    LossNormalizingFactor,
    cache_batch_axis,
    decoder_arguments,
    pick_decodes,
    score_targets,
)

if TYPE_CHECKING:
    import numpy as np
    from flax import linen as nn
    from t5x.optimizers import OptimizerDefType

# What the network takes besides the tokens, if the batch has it.
_OPTIONAL_FEATURES = ("encoder_positions", "decoder_positions", "encoder_segment_ids", "decoder_segment_ids")


@dataclasses.dataclass(frozen=True)
class DecoderParams:
    """How a model predicts unless the call says otherwise.

    Attributes:
      return_all_decodes: Whether to return all continuations of each input, not only the best.
      num_decodes: How many continuations to look for.
    """

    return_all_decodes: bool = False
    num_decodes: int = 1


class EncoderDecoderModel(BaseTransformerModel):
    """A model that reads inputs with an encoder and writes targets with a decoder, e.g. T5.

    Attributes:
      FEATURE_CONVERTER_CLS: The seqio feature converter that makes this model's batches.
    """

    FEATURE_CONVERTER_CLS = seqio.EncDecFeatureConverter

    def __init__(
        self,
        module: nn.Module,
        input_vocabulary: seqio.Vocabulary,
        output_vocabulary: seqio.Vocabulary,
        optimizer_def: OptimizerDefType,
        decode_fn: DecodeFnCallable = decoding.beam_search,
        feature_converter_cls: Callable[..., seqio.FeatureConverter] | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: LossNormalizingFactor = None,
        default_decoder_params: DecoderParams | None = None,
    ) -> None:
        """Puts a model together.

        Args:
          module: The network, with the methods `__call__`, `encode` and `decode` of `t5x.examples.t5.network`.
          input_vocabulary: Of the inputs.
          output_vocabulary: Of the targets.
          optimizer_def: The optimizer that the model is trained with.
          decode_fn: How to predict; `t5x.decoding` has two ways.
          feature_converter_cls: What makes the batches, in place of `FEATURE_CONVERTER_CLS`.
          label_smoothing: See `t5x.losses.compute_weighted_cross_entropy`.
          z_loss: See there.
          loss_normalizing_factor: What the loss is divided by: a number, None, or a special factor.
          default_decoder_params: How to predict unless the call says otherwise.
        """
        super().__init__(
            module=module,
            input_vocabulary=input_vocabulary,
            output_vocabulary=output_vocabulary,
            optimizer_def=optimizer_def,
            decode_fn=decode_fn,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            loss_normalizing_factor=loss_normalizing_factor,
        )
        self._default_decoder_params = default_decoder_params or DecoderParams()
        if feature_converter_cls is not None:
            self.FEATURE_CONVERTER_CLS = feature_converter_cls

    def get_initial_variables(
        self,
        rng: jax.Array,
        input_shapes: Mapping[str, Any],
        input_types: Mapping[str, np.dtype] | None = None,
    ) -> flax_core.FrozenDict[str, Any]:
        """Initialises the parameters by a pass over features of ones.

        Args:
          rng: Key of the initial values.
          input_shapes: The shape of every feature: of `encoder_input_tokens` and `decoder_input_tokens` at least.
          input_types: The dtype of every feature; float32 for tokens and int32 for others unless given.

        Returns:
          The variable collections, frozen: `params` and `params_axes`.
        """
        types = input_types or {}

        def ones(feature: str, default_type: Any) -> jax.Array:
            return jnp.ones(input_shapes[feature], types.get(feature, default_type))

        decoder_tokens = ones("decoder_input_tokens", jnp.float32)
        variables = self.module.init(
            rng,
            ones("encoder_input_tokens", jnp.float32),
            decoder_tokens,
            decoder_tokens,
            **{name: ones(name, jnp.int32) if name in input_shapes else None for name in _OPTIONAL_FEATURES},
            decode=False,
            enable_dropout=False,
        )
        return flax_core.freeze(variables)

    def _compute_logits(
        self,
        params: PyTree,
        batch: Batch,
        dropout_rng: jax.Array | None = None,
        mutable: Any = False,
        other_variables: PyTree | None = None,
    ) -> Any:
        """Runs the network on whole targets.

        Args:
          params: The parameters.
          batch: Features by name.
          dropout_rng: Key of the dropout; None turns dropout off.
          mutable: Which collections the network may write to, see `flax.linen.Module.apply`.
          other_variables: More collections to give to the network.

        Returns:
          float[batch, length, vocabulary]; if anything is mutable, a pair of that and of the collections.
        """
        return self.module.apply(
            {"params": params, **(other_variables or {})},
            batch["encoder_input_tokens"],
            batch["decoder_input_tokens"],
            batch["decoder_target_tokens"],
            **{name: batch.get(name) for name in _OPTIONAL_FEATURES},
            decode=False,
            enable_dropout=dropout_rng is not None,
            rngs=None if dropout_rng is None else {"dropout": dropout_rng},
            mutable=mutable,
        )

    def _compute_logits_from_slice(
        self,
        decoding_state: decoding.DecodingState,
        params: PyTree,
        encoded_inputs: jax.Array,
        raw_inputs: jax.Array,
        max_decode_length: int,
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Runs the decoder for one token.

        Args:
          decoding_state: The last tokens and the cache, one row for every beam.
          params: The parameters.
          encoded_inputs: float[rows, input length, features], the encoder's output for every beam.
          raw_inputs: int[rows, input length], the input tokens for every beam.
          max_decode_length: How many positions the cache has.

        Returns:
          float[rows, vocabulary] logits, and the next cache.
        """
        token = decoding_state.cur_token
        logits, variables = self.module.apply(
            {"params": params, "cache": decoding_state.cache},
            encoded_inputs,
            raw_inputs,
            token,
            token,
            enable_dropout=False,
            decode=True,
            max_decode_length=max_decode_length,
            mutable=["cache"],
            method=self.module.decode,
        )
        return jnp.squeeze(logits, axis=1), variables["cache"]

    def _compute_kv_cache(
        self,
        params: PyTree,
        encoded_inputs: jax.Array,
        encoder_input_tokens: jax.Array,
        decoder_input_tokens: jax.Array,
        prefill_decoder_prompt: bool = False,
    ) -> tuple[PyTree, jax.Array | None]:
        """Makes the cache that decoding starts with.

        Args:
          params: The parameters.
          encoded_inputs: float[batch, input length, features], the encoder's output.
          encoder_input_tokens: int[batch, input length].
          decoder_input_tokens: int[batch, length], prompts for the decoder; their length is that of the cache.
          prefill_decoder_prompt: Whether to run the decoder over the whole prompt at once instead of token by token.

        Returns:
          The cache, and the length of every prompt if it's prefilled, else None.
        """
        _, variables = self.module.apply(
            {"params": params},
            encoder_input_tokens=jnp.ones_like(encoder_input_tokens),
            decoder_input_tokens=jnp.ones_like(decoder_input_tokens),
            decoder_target_tokens=jnp.ones_like(decoder_input_tokens),
            mutable=["cache"],
            decode=True,
            enable_dropout=False,
        )
        empty = variables["cache"]
        if not prefill_decoder_prompt:
            return empty, None
        lengths = jnp.sum(decoder_input_tokens != 0, axis=1)
        _, variables = self.module.apply(
            {"params": params, "cache": empty},
            encoded=encoded_inputs,
            encoder_input_tokens=encoder_input_tokens,
            decoder_input_tokens=decoder_input_tokens,
            decoder_target_tokens=jnp.ones_like(decoder_input_tokens),
            mutable=["cache"],
            enable_dropout=False,
            prefill=True,
            prefill_lengths=lengths,
            method=self.module.decode,
        )
        cache = variables["cache"]
        if "position_embedder" in cache["decoder"]:
            # Absolute positions are counted by the decoder itself, which doesn't do it while prefilling.
            cache["decoder"]["position_embedder"]["position_embedder_index"] = lengths
        return cache, lengths

    def _can_prefill(self) -> bool:
        """Says whether both the decoder function and the network know prompts that are in the cache already."""
        for callee, argument in [(self.decode_fn, "initial_index"), (self.module.decode, "prefill")]:
            if argument not in inspect.signature(callee).parameters:
                logging.info("Prompts are decoded token by token: %s takes no %s.", callee, argument)
                return False
        return True

    def predict_batch_with_aux(
        self,
        params: PyTree,
        batch: Batch,
        rng: jax.Array | None = None,
        decoder_params: MutableMapping[str, Any] | None = None,
        return_all_decodes: bool | None = None,
        num_decodes: int | None = None,
        prompt_with_targets: bool = False,
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Decodes the inputs of a batch.

        Args:
          params: The parameters.
          batch: Features by name. The length of `decoder_input_tokens` is that of the predictions.
          rng: Key for decoders that draw random numbers.
          decoder_params: More arguments for the decoder; it's left unchanged.
          return_all_decodes: Whether to return all continuations; None for the model's default.
          num_decodes: How many continuations to look for; None for the model's default.
          prompt_with_targets: Whether the decoder must begin with the targets of the batch (without end tokens).

        Returns:
          int32[batch, length] predictions and `scores`: float32[batch]. With `return_all_decodes`, both have an axis of
          size `num_decodes` after the batch axis, the best last.

        Raises:
          ValueError: `rng` is given both by itself and within `decoder_params`.
        """
        defaults = self._default_decoder_params
        return_all_decodes = defaults.return_all_decodes if return_all_decodes is None else return_all_decodes
        num_decodes = defaults.num_decodes if num_decodes is None else num_decodes
        inputs, targets = batch["encoder_input_tokens"], batch["decoder_input_tokens"]
        prompts = jnp.zeros_like(targets)
        if prompt_with_targets:
            prompts = jnp.where(targets == self.output_vocabulary.eos_id, 0, targets)

        encoded = self.module.apply({"params": params}, inputs, enable_dropout=False, method=self.module.encode)
        cache, prompt_lengths = self._compute_kv_cache(
            params,
            encoded_inputs=encoded,
            encoder_input_tokens=inputs,
            decoder_input_tokens=prompts,
            prefill_decoder_prompt=self._can_prefill(),
        )
        arguments = decoder_arguments(decoder_params, rng, self.output_vocabulary)
        if prompt_lengths is not None:
            arguments["initial_index"] = prompt_lengths
        sequences, scores = self._decode_fn(
            inputs=prompts,
            cache=cache,
            tokens_to_logits=functools.partial(
                self._compute_logits_from_slice,
                params=params,
                # All beams of an input read the same.
                encoded_inputs=decoding.flat_batch_beam_expand(encoded, num_decodes),
                raw_inputs=decoding.flat_batch_beam_expand(inputs, num_decodes),
                max_decode_length=targets.shape[1],
            ),
            num_decodes=num_decodes,
            cache_offset=cache_batch_axis(self.module),
            **arguments,
        )
        return pick_decodes(sequences, scores, return_all_decodes)

    def score_batch(self, params: PyTree, batch: Batch, return_intermediates: bool = False) -> Any:
        """Computes the log probability of the targets of every example.

        Args:
          params: The parameters.
          batch: Features by name; `decoder_loss_weights` says what each target counts.
          return_intermediates: Whether to return intermediates too.

        Returns:
          float[batch] scores. With intermediates, a pair of them and of what the network sowed, where the entry
          `decoder` also has `target_tokens`, `loss_weights` and `token_scores`.
        """
        return score_targets(self._compute_logits, params, batch, return_intermediates)
