"""Language models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import seqio
from flax import core as flax_core
from flax.linen import partitioning as flax_partitioning
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

# Marks the positions of the inputs (1), which a prefix language model may read in both directions.
_PREFIX_FEATURE = "decoder_causal_attention"


@jax.vmap
def remove_prefix(sequence: jax.Array, prefix_length: jax.Array) -> jax.Array:
    """Drops the beginning of every sequence and fills up with zeros at the end.

    Args:
      sequence: int[batch, length], or int[batch, num_decodes, length].
      prefix_length: int[batch], how many tokens to drop.

    Returns:
      An array of the shape of `sequence`.
    """
    is_prefix = jnp.arange(sequence.shape[-1]) < prefix_length
    return jnp.roll(jnp.where(is_prefix, 0, sequence), -prefix_length, axis=-1)


class DecoderOnlyModel(BaseTransformerModel):
    """A model that continues sequences of tokens; inputs and targets are one sequence.

    Attributes:
      FEATURE_CONVERTER_CLS: The seqio feature converter that makes this model's batches.
    """

    FEATURE_CONVERTER_CLS = seqio.DecoderFeatureConverter

    def __init__(
        self,
        module: nn.Module,
        vocabulary: seqio.Vocabulary,
        optimizer_def: OptimizerDefType,
        decode_fn: DecodeFnCallable = decoding.temperature_sample,
        inputs_bidirectional_attention: bool = False,
        feature_converter_cls: Callable[..., seqio.FeatureConverter] | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: LossNormalizingFactor = None,
    ) -> None:
        """Puts a model together.

        Args:
          module: The network, called with decoder inputs and targets.
          vocabulary: Of inputs and targets.
          optimizer_def: The optimizer that the model is trained with.
          decode_fn: How to predict; `t5x.decoding` has two ways.
          inputs_bidirectional_attention: Whether the positions of the inputs see each other in both directions (prefix
            language models).
          feature_converter_cls: What makes the batches, in place of `FEATURE_CONVERTER_CLS`.
          label_smoothing: See `t5x.losses.compute_weighted_cross_entropy`.
          z_loss: See there.
          loss_normalizing_factor: What the loss is divided by: a number, None, or a special factor.
        """
        super().__init__(
            module,
            input_vocabulary=vocabulary,
            output_vocabulary=vocabulary,
            optimizer_def=optimizer_def,
            decode_fn=decode_fn,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            loss_normalizing_factor=loss_normalizing_factor,
        )
        self._inputs_bidirectional_attention = inputs_bidirectional_attention
        if feature_converter_cls is not None:
            self.FEATURE_CONVERTER_CLS = feature_converter_cls

    def get_initial_variables(
        self,
        rng: jax.Array,
        input_shapes: Mapping[str, Any],
        input_types: Mapping[str, np.dtype] | None = None,
    ) -> flax_core.FrozenDict[str, Any]:
        """Initialises the parameters by a pass over tokens of ones.

        Args:
          rng: Key of the initial values.
          input_shapes: The shape of `decoder_input_tokens`, and of other features, which aren't read.
          input_types: The dtype of every feature; float32 unless given.

        Returns:
          The variable collections, frozen: `params` and `params_axes`.
        """
        feature = "decoder_input_tokens"
        tokens = jnp.ones(input_shapes[feature], (input_types or {}).get(feature, jnp.float32))
        return flax_core.freeze(self.module.init(rng, tokens, tokens, enable_dropout=False))

    def _get_decoder_causal_attention(self, batch: Batch) -> jax.Array | None:
        """Gives the positions that see each other in both directions, or None if there are none.

        Raises:
          ValueError: The model wants them, but the batch doesn't say which they are.
        """
        if not self._inputs_bidirectional_attention:
            return None
        if _PREFIX_FEATURE not in batch:
            raise ValueError(
                f"inputs_bidirectional_attention needs the feature {_PREFIX_FEATURE!r}, but the batch has only "
                f"{sorted(batch)}; use a feature converter that makes it, such as seqio.PrefixLMFeatureConverter"
            )
        return batch[_PREFIX_FEATURE]

    def _compute_logits(
        self,
        params: PyTree,
        batch: Batch,
        dropout_rng: jax.Array | None = None,
        mutable: Any = False,
        other_variables: PyTree | None = None,
    ) -> Any:
        """Runs the network on whole sequences.

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
            batch["decoder_input_tokens"],
            batch["decoder_target_tokens"],
            decoder_segment_ids=batch.get("decoder_segment_ids"),
            decoder_positions=batch.get("decoder_positions"),
            decoder_causal_attention=self._get_decoder_causal_attention(batch),
            decode=False,
            enable_dropout=dropout_rng is not None,
            rngs=None if dropout_rng is None else {"dropout": dropout_rng},
            mutable=mutable,
        )

    def _compute_logits_from_slice(
        self, decoding_state: decoding.DecodingState, params: PyTree, max_decode_length: int
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Runs the network for one token.

        Args:
          decoding_state: The last tokens and the cache, one row for every beam.
          params: The parameters.
          max_decode_length: How many positions the cache has.

        Returns:
          float[rows, vocabulary] logits, and the next cache.
        """
        token = decoding_state.cur_token
        logits, variables = self.module.apply(
            {"params": params, "cache": decoding_state.cache},
            token,
            token,
            enable_dropout=False,
            decode=True,
            max_decode_length=max_decode_length,
            mutable=["cache"],
        )
        return jnp.squeeze(logits, axis=1), variables["cache"]

    def _compute_kv_cache(
        self, params: PyTree, inputs: jax.Array, causal_attention_mask: jax.Array
    ) -> tuple[PyTree, jax.Array]:
        """Makes a cache that holds the inputs already.

        Args:
          params: The parameters.
          inputs: int[batch, length], the start token, the inputs, then zeros.
          causal_attention_mask: int[batch, length], 1 at the positions of the inputs and at the start token.

        Returns:
          The cache, and int[batch] lengths of the inputs, the start token not counted.
        """
        lengths = jnp.sum(inputs[:, 1:] != 0, axis=-1)
        blank = jnp.ones_like(inputs)
        _, variables = self.module.apply(
            {"params": params}, blank, blank, enable_dropout=False, decode=True, mutable=["cache"]
        )
        cache = variables["cache"]
        if "cache_axes" in variables:
            axes = flax_partitioning.get_axis_names(variables["cache_axes"])
            cache = jax.tree.map(flax_partitioning.with_sharding_constraint, cache, axes)
        # The mask stands in for the targets: it isn't zero exactly where the inputs are, so nothing else is read.
        _, variables = self.module.apply(
            {"params": params, "cache": cache},
            decoder_input_tokens=inputs,
            decoder_target_tokens=causal_attention_mask,
            decoder_causal_attention=self._get_decoder_causal_attention({_PREFIX_FEATURE: causal_attention_mask}),
            mutable=["cache"],
            enable_dropout=False,
            prefill=True,
            prefill_lengths=lengths,
        )
        return variables["cache"], lengths

    def predict_batch_with_aux(
        self,
        params: PyTree,
        batch: Batch,
        rng: jax.Array | None = None,
        *,
        return_all_decodes: bool = False,
        num_decodes: int = 1,
        decoder_params: MutableMapping[str, Any] | None = None,
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Continues the inputs of a batch.

        Args:
          params: The parameters.
          batch: Features by name, with `decoder_causal_attention`, which tells inputs from targets.
          rng: Key for decoders that draw random numbers.
          return_all_decodes: Whether to return all continuations, not only the best.
          num_decodes: How many continuations to look for.
          decoder_params: More arguments for the decoder; it's left unchanged.

        Returns:
          int32[batch, length] predictions without the inputs, and `scores`: float32[batch]. With `return_all_decodes`,
          both have an axis of size `num_decodes` after the batch axis, the best last.

        Raises:
          ValueError: The batch doesn't tell inputs from targets, or `rng` is given both by itself and within
            `decoder_params`.
        """
        if _PREFIX_FEATURE not in batch:
            raise ValueError(
                f"the batch has no feature {_PREFIX_FEATURE!r}, so it's unknown what to continue; task_feature_lengths "
                "must name both 'inputs' and 'targets', and the feature converter must tell them apart"
            )
        tokens, is_input = batch["decoder_input_tokens"], batch[_PREFIX_FEATURE]
        prompts = tokens * is_input
        cache, prompt_lengths = self._compute_kv_cache(params, prompts, is_input)
        sequences, scores = self._decode_fn(
            inputs=prompts,
            cache=cache,
            tokens_to_logits=functools.partial(
                self._compute_logits_from_slice, params=params, max_decode_length=tokens.shape[1]
            ),
            num_decodes=num_decodes,
            initial_index=prompt_lengths,
            cache_offset=cache_batch_axis(self.module),
            **decoder_arguments(decoder_params, rng, self.output_vocabulary),
        )
        sequences, aux = pick_decodes(sequences, scores, return_all_decodes)
        return remove_prefix(sequences, prompt_lengths), aux

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
