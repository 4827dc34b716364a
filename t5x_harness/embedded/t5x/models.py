"""Models: a network with its loss, its metrics and its predictions, for the trainer, the evaluator and inference."""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Union

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from clu import metrics as clu_metrics
from flax import core as flax_core
from flax.linen import partitioning as flax_partitioning
from t5x import decoding, losses
from t5x import metrics as metrics_lib
from t5x._lazy import SeqIOClass, seqio, tf
from t5x.metrics import AveragePerStep, MetricsMap, StepsPerTime, Sum, Time, TimeRate
from typing_extensions import Protocol

if TYPE_CHECKING:
    from flax import linen as nn
    from t5x.optimizers import OptimizerDefType


Array = Union[np.ndarray, jax.Array, "tf.Tensor"]
PyTree = Any
PyTreeDef = jax.tree_util.PyTreeDef
Batch = Mapping[str, jax.Array]


class TokensIdsToLogitsCallable(Protocol):
    """The model from a decoder's view."""

    def __call__(self, decoding_state: decoding.DecodingState) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Returns the float[rows, vocabulary] logits of the next token of each row, and the next cache."""


class DecodeFnCallable(Protocol):
    """A decoder from a model's view; arguments and results are those of ``t5x.decoding.temperature_sample``."""

    def __call__(
        self,
        *,
        inputs: jax.Array,
        cache: Mapping[str, jax.Array],
        tokens_to_logits: TokensIdsToLogitsCallable,
        eos_id: int,
        num_decodes: int,
        decode_rng: jax.Array | None,
        cache_offset: int,
        **kwargs: Any,
    ) -> tuple[jax.Array, jax.Array]:
        """Continues prompts by int32[batch, num_decodes, length] tokens with float32[batch, num_decodes] scores."""


class BaseModel(abc.ABC):
    """A model with its loss, its metrics and its predictions.

    Models hold no parameters: the trainer keeps those and passes them in. Batches are features by name, which
    ``FEATURE_CONVERTER_CLS``, a SeqIO feature converter, makes.
    """

    FEATURE_CONVERTER_CLS: Callable[..., Any]

    def __init__(self, optimizer_def: OptimizerDefType) -> None:
        self.optimizer_def = optimizer_def

    @abc.abstractmethod
    def loss_fn(self, params: PyTree, batch: Batch, dropout_rng: jax.Array | None) -> tuple[jax.Array, MetricsMap]:
        """Computes the scalar loss that training minimizes, and metrics by name; no ``dropout_rng``, no dropout."""

    def eval_fn(self, params: PyTree, batch: Batch) -> tuple[jax.Array, MetricsMap]:
        """Computes loss and metrics without dropout."""
        return self.loss_fn(params=params, batch=batch, dropout_rng=None)

    def predict_batch(self, params: PyTree, batch: Batch, rng: jax.Array | None = None) -> jax.Array:
        """Predicts, and drops the auxiliary values of ``predict_batch_with_aux``."""
        return self.predict_batch_with_aux(params=params, batch=batch, rng=rng)[0]

    @abc.abstractmethod
    def predict_batch_with_aux(
        self, params: PyTree, batch: Batch, rng: jax.Array | None = None
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Predicts: an array, batch axis first, and auxiliary values for each prediction, e.g. scores."""

    @abc.abstractmethod
    def score_batch(self, params: PyTree, batch: Batch, return_intermediates: bool = False) -> jax.Array:
        """Scores the targets of a batch, float[batch]: the higher, the likelier the model finds them.

        With ``return_intermediates``, returns a pair of that and of the values that the network sows into
        ``intermediates``.
        """

    @abc.abstractmethod
    def get_initial_variables(
        self, rng: jax.Array, input_shapes: Mapping[str, Any], input_types: Mapping[str, np.dtype] | None = None
    ) -> Mapping[str, Any]:
        """Initializes the variables: ``params``, ``params_axes`` (logical axis names) and any others."""


LossNormalizingFactor = float | int | str | losses.SpecialLossNormalizingFactor | None


class BaseTransformerModel(BaseModel):
    """A model of token sequences.

    ``decode_fn`` predicts, ``label_smoothing`` and ``z_loss`` are those of
    ``t5x.losses.compute_weighted_cross_entropy``, and ``loss_normalizing_factor`` is the divisor of the loss: a
    number, None, or a special factor.
    """

    def __init__(
        self,
        module: nn.Module,
        input_vocabulary: seqio.Vocabulary,
        output_vocabulary: seqio.Vocabulary,
        optimizer_def: OptimizerDefType,
        decode_fn: DecodeFnCallable | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: LossNormalizingFactor = None,
    ) -> None:
        super().__init__(optimizer_def=optimizer_def)
        self.module = module
        self._input_vocabulary, self._output_vocabulary = input_vocabulary, output_vocabulary
        self._decode_fn = decode_fn
        self._loss_normalizing_factor = loss_normalizing_factor
        self._label_smoothing, self._z_loss = label_smoothing, z_loss

    @property
    def input_vocabulary(self) -> seqio.Vocabulary:
        """The vocabulary of the inputs."""
        return self._input_vocabulary

    @property
    def output_vocabulary(self) -> seqio.Vocabulary:
        """The vocabulary of the targets."""
        return self._output_vocabulary

    @property
    def decode_fn(self) -> DecodeFnCallable | None:
        """The function that decodes predictions."""
        return self._decode_fn

    @abc.abstractmethod
    def _compute_logits(self, params: PyTree, batch: Batch, dropout_rng: jax.Array | None = None) -> jax.Array:
        """Runs the network on whole targets, float[batch, length, vocabulary], with the arguments of ``loss_fn``."""

    def loss_fn(self, params: PyTree, batch: Batch, dropout_rng: jax.Array | None) -> tuple[jax.Array, MetricsMap]:
        """Computes the weighted cross entropy of the targets, summed over the batch, and the metrics of the batch."""
        targets = batch["decoder_target_tokens"]
        logits = self._compute_logits(params, batch, dropout_rng)  # [batch, length, vocabulary]
        factor, weights = losses.get_loss_normalizing_factor_and_weights(self._loss_normalizing_factor, batch)
        loss, z_loss, _ = losses.compute_weighted_cross_entropy(
            logits,
            targets=targets,
            weights=weights,
            label_smoothing=self._label_smoothing,
            z_loss=self._z_loss,
            loss_normalizing_factor=factor,
        )
        metrics = self._compute_metrics(
            logits=logits, targets=targets, mask=weights, loss=loss, z_loss=z_loss, segment_ids=_segments(batch)
        )
        return loss, metrics

    def _compute_metrics(
        self,
        logits: jax.Array,
        targets: jax.Array,
        mask: jax.Array,
        loss: jax.Array,
        z_loss: jax.Array | None = None,
        segment_ids: Mapping[str, jax.Array] | None = None,
    ) -> MetricsMap:
        """Makes the metrics of a batch; subclasses add their own."""
        return compute_base_metrics(logits, targets, mask, loss, z_loss, segment_ids)


def _segments(batch: Batch) -> dict[str, jax.Array]:
    """Finds the packed segments of every feature; features that aren't packed have one segment per row."""
    suffix = "_segment_ids"
    packed = {name.removesuffix(suffix): ids for name, ids in batch.items() if name.endswith(suffix)}
    if packed:
        return packed
    counted = ("encoder_input_tokens", "decoder_target_tokens")
    return {name: tokens != 0 for name, tokens in batch.items() if name in counted}


def _score_targets(compute_logits: Callable[..., Any], params: PyTree, batch: Batch, return_intermediates: bool) -> Any:
    """Sums the log probabilities of the targets of every row, each times its ``decoder_loss_weights``: float[batch].

    With ``return_intermediates``, returns a pair of that and of the values that the network sowed; the entry
    ``decoder`` of them has the targets, their weights and the log probability of each.
    """
    targets, weights = batch["decoder_target_tokens"], batch["decoder_loss_weights"]
    sown: Mapping[str, Any] = {}
    if return_intermediates:
        logits, variables = compute_logits(params=params, batch=batch, mutable=["intermediates"])
        sown = variables.get("intermediates", {})
    else:
        logits = compute_logits(params, batch)
    one_hot = jax.nn.one_hot(targets, logits.shape[-1], dtype=jnp.float32)  # [batch, length, vocabulary]
    token_scores = -losses.cross_entropy_with_logits(logits, one_hot, 0.0)[0] * weights  # [batch, length]
    scores = token_scores.sum(axis=-1)
    if not return_intermediates:
        return scores
    of_decoder = {"target_tokens": (targets,), "loss_weights": (weights,), "token_scores": (token_scores,)}
    return scores, {**sown, "decoder": {**sown.get("decoder", {}), **of_decoder}}


def _decoder_arguments(
    given: MutableMapping[str, Any] | None, rng: jax.Array | None, vocabulary: seqio.Vocabulary
) -> dict[str, Any]:
    """Adds a key and the end token to a copy of the caller's arguments for a decoder."""
    arguments = dict(given or {})
    if rng is not None:
        if arguments.get("decode_rng") is not None:
            raise ValueError(
                f"Got RNG both from the `rng` argument ({rng}) and `decoder_params['decode_rng']` "
                f"({arguments['decode_rng']}). Please specify one or the other."
            )
        arguments["decode_rng"] = rng
    arguments.setdefault("eos_id", vocabulary.eos_id or 1)
    return arguments


def _cache_batch_axis(module: nn.Module) -> int:
    """Returns the batch axis of a network's cache entries: with scanned layers, it is the second axis."""
    return 1 if getattr(module, "scan_layers", False) else 0


def _pick_decodes(
    sequences: jax.Array, scores: jax.Array, return_all_decodes: bool
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Makes a prediction from a decoder's results: all continuations of each prompt, or the last and best one."""
    if return_all_decodes:
        return sequences, {"scores": scores}
    return sequences[:, -1], {"scores": scores[:, -1]}


# Features that the network takes besides the tokens, if the batch has them.
_OPTIONAL_FEATURES = ("encoder_positions", "decoder_positions", "encoder_segment_ids", "decoder_segment_ids")


@dataclasses.dataclass(frozen=True)
class DecoderParams:
    """The default settings of predictions; see ``EncoderDecoderModel.predict_batch_with_aux``."""

    return_all_decodes: bool = False
    num_decodes: int = 1


class EncoderDecoderModel(BaseTransformerModel):
    """A model that encodes inputs and decodes targets, e.g. T5.

    It takes what ``BaseTransformerModel`` does, and more: ``module`` has the methods ``__call__``, ``encode`` and
    ``decode`` of ``t5x.examples.t5.network``, ``feature_converter_cls`` makes the batches in place of
    ``FEATURE_CONVERTER_CLS``, and ``default_decoder_params`` are the default settings of predictions.
    """

    FEATURE_CONVERTER_CLS = SeqIOClass("EncDecFeatureConverter")

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
        super().__init__(
            module,
            input_vocabulary,
            output_vocabulary,
            optimizer_def,
            decode_fn,
            label_smoothing,
            z_loss,
            loss_normalizing_factor,
        )
        self._default_decoder_params = default_decoder_params or DecoderParams()
        if feature_converter_cls is not None:
            self.FEATURE_CONVERTER_CLS = feature_converter_cls

    def get_initial_variables(
        self, rng: jax.Array, input_shapes: Mapping[str, Any], input_types: Mapping[str, np.dtype] | None = None
    ) -> flax_core.FrozenDict[str, Any]:
        """Initializes the parameters by a pass over features of ones.

        Features without an entry in ``input_types`` are float32 if they are tokens and int32 otherwise. The variable
        collections, ``params`` and ``params_axes``, are frozen.
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
        """Runs the network on whole targets: float[batch, length, vocabulary], in a pair with mutable collections."""
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
        """Runs the decoder for one token of every beam: float[rows, vocabulary] logits, and the next cache."""
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
        """Makes the initial cache for decoding, and returns the length of every prompt too if it's prefilled.

        It has as many positions as ``decoder_input_tokens``, the int[batch, length] prompts. With
        ``prefill_decoder_prompt`` these go through the decoder all at once.
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
        lengths = jnp.sum(decoder_input_tokens != 0, axis=1)  # [batch]
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
            # The decoder itself counts absolute positions, except while prefilling.
            cache["decoder"]["position_embedder"]["position_embedder_index"] = lengths
        return cache, lengths

    def _can_prefill(self) -> bool:
        """Returns whether both the decoder function and the network support a prefilled cache."""
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
        """Decodes the inputs of a batch; predictions have the length of ``decoder_input_tokens``.

        ``decoder_params`` has more arguments for the decoder, and is not changed. ``num_decodes`` continuations are
        searched for, and only the best is returned unless ``return_all_decodes``; None means the model's defaults. With
        ``prompt_with_targets`` the decoder must begin with the targets of the batch (without end tokens).

        Returns:
            int32[batch, length] predictions and ``scores``: float32[batch]. With ``return_all_decodes``, both have an
            axis of size ``num_decodes`` after the batch axis, the best last.

        Raises:
            ValueError: ``rng`` is given both by itself and within ``decoder_params``.
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
        arguments = _decoder_arguments(decoder_params, rng, self.output_vocabulary)
        if prompt_lengths is not None:
            arguments["initial_index"] = prompt_lengths
        sequences, scores = self._decode_fn(
            inputs=prompts,
            cache=cache,
            tokens_to_logits=functools.partial(
                self._compute_logits_from_slice,
                params=params,
                # All beams of an input read the same encoding.
                encoded_inputs=decoding.flat_batch_beam_expand(encoded, num_decodes),
                raw_inputs=decoding.flat_batch_beam_expand(inputs, num_decodes),
                max_decode_length=targets.shape[1],
            ),
            num_decodes=num_decodes,
            cache_offset=_cache_batch_axis(self.module),
            **arguments,
        )
        return _pick_decodes(sequences, scores, return_all_decodes)

    def score_batch(self, params: PyTree, batch: Batch, return_intermediates: bool = False) -> Any:
        """Returns the log probability of the targets of every example; see ``_score_targets``."""
        return _score_targets(self._compute_logits, params, batch, return_intermediates)


# Marks the positions of the inputs (1), which a prefix language model may read in both directions.
_PREFIX_FEATURE = "decoder_causal_attention"


@jax.vmap
def remove_prefix(sequence: jax.Array, prefix_length: jax.Array) -> jax.Array:
    """Drops the first ``prefix_length`` tokens of int[batch, ..., length] rows, and fills with zeros at the end."""
    is_prefix = jnp.arange(sequence.shape[-1]) < prefix_length  # [length]; the batch is mapped over
    return jnp.roll(jnp.where(is_prefix, 0, sequence), -prefix_length, axis=-1)


class DecoderOnlyModel(BaseTransformerModel):
    """A model that continues token sequences; inputs and targets are one sequence.

    It takes what ``BaseTransformerModel`` does, with one vocabulary. With ``inputs_bidirectional_attention`` the
    positions of the inputs see each other in both directions (prefix language models: Raffel et al. 2019, section
    3.2.1, arXiv:1910.10683). ``feature_converter_cls`` makes the batches in place of ``FEATURE_CONVERTER_CLS``.
    """

    FEATURE_CONVERTER_CLS = SeqIOClass("DecoderFeatureConverter")

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
        super().__init__(
            module, vocabulary, vocabulary, optimizer_def, decode_fn, label_smoothing, z_loss, loss_normalizing_factor
        )
        self._inputs_bidirectional_attention = inputs_bidirectional_attention
        if feature_converter_cls is not None:
            self.FEATURE_CONVERTER_CLS = feature_converter_cls

    def get_initial_variables(
        self, rng: jax.Array, input_shapes: Mapping[str, Any], input_types: Mapping[str, np.dtype] | None = None
    ) -> flax_core.FrozenDict[str, Any]:
        """Initializes the parameters by a pass over ``decoder_input_tokens`` of ones, float32 unless typed."""
        feature = "decoder_input_tokens"
        tokens = jnp.ones(input_shapes[feature], (input_types or {}).get(feature, jnp.float32))
        return flax_core.freeze(self.module.init(rng, tokens, tokens, enable_dropout=False))

    def _get_decoder_causal_attention(self, batch: Batch) -> jax.Array | None:
        """Returns the positions that see each other in both directions, or None if the model has none."""
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
        """Runs the network on whole sequences; arguments and result are those of ``EncoderDecoderModel``."""
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
        """Runs the network for one token; arguments and result are those of ``EncoderDecoderModel``."""
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
        """Makes a cache that holds the inputs, and returns their int[batch] lengths, without the start token.

        ``inputs`` are int[batch, length]: the start token, the inputs, then zeros. ``causal_attention_mask`` is 1 at
        these positions, the start token's included.
        """
        lengths = jnp.sum(inputs[:, 1:] != 0, axis=-1)  # [batch]
        blank = jnp.ones_like(inputs)
        _, variables = self.module.apply(
            {"params": params}, blank, blank, enable_dropout=False, decode=True, mutable=["cache"]
        )
        cache = variables["cache"]
        if "cache_axes" in variables:
            axes = flax_partitioning.get_axis_names(variables["cache_axes"])
            cache = jax.tree.map(flax_partitioning.with_sharding_constraint, cache, axes)
        # The mask stands in for the targets: it is nonzero exactly at the inputs, so nothing else is read.
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
        """Continues the inputs of a batch, which ``decoder_causal_attention`` distinguishes from the targets.

        Arguments and errors are those of ``EncoderDecoderModel.predict_batch_with_aux``; predictions do not include the
        inputs.

        Raises:
            ValueError: the batch doesn't distinguish inputs from targets.
        """
        if _PREFIX_FEATURE not in batch:
            raise ValueError(
                f"the batch has no feature {_PREFIX_FEATURE!r}, so it's unknown what to continue; task_feature_lengths "
                "must name both 'inputs' and 'targets', and the feature converter must tell them apart"
            )
        tokens, is_input = batch["decoder_input_tokens"], batch[_PREFIX_FEATURE]
        prompts = tokens * is_input  # [batch, length]
        cache, prompt_lengths = self._compute_kv_cache(params, prompts, is_input)
        sequences, scores = self._decode_fn(
            inputs=prompts,
            cache=cache,
            tokens_to_logits=functools.partial(
                self._compute_logits_from_slice, params=params, max_decode_length=tokens.shape[1]
            ),
            num_decodes=num_decodes,
            initial_index=prompt_lengths,
            cache_offset=_cache_batch_axis(self.module),
            **_decoder_arguments(decoder_params, rng, self.output_vocabulary),
        )
        sequences, aux = _pick_decodes(sequences, scores, return_all_decodes)
        return remove_prefix(sequences, prompt_lengths), aux

    def score_batch(self, params: PyTree, batch: Batch, return_intermediates: bool = False) -> Any:
        """Returns the log probability of the targets of every example; see ``_score_targets``."""
        return _score_targets(self._compute_logits, params, batch, return_intermediates)


def compute_weighted_accuracy(logits: jax.Array, targets: jax.Array, weights: jax.Array | None = None) -> jax.Array:
    """Sums the weights of the targets that the model predicts correctly, or counts them if there are no weights.

    ``logits`` are float[batch, length, vocabulary], ``targets`` and ``weights`` [batch, length].

    Raises:
        ValueError: ``logits`` doesn't have exactly one axis more than ``targets``.
    """
    if logits.ndim != targets.ndim + 1:
        raise ValueError(
            f"logits need one axis more than targets: got logits of shape {logits.shape} and targets of shape "
            f"{targets.shape}"
        )
    right = jnp.argmax(logits, axis=-1) == targets
    return jnp.sum(right if weights is None else right * weights)


def compute_metrics(
    logits: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    loss: jax.Array,
    weight_sum: jax.Array,
    additional_metrics: MetricsMap,
) -> MetricsMap:
    """Makes plain sums of loss, accuracy, weights, examples and tokens.

    Shapes are those of ``compute_weighted_accuracy``; ``additional_metrics`` override metrics of the same name.
    """
    sums = metrics_lib.create_metrics_dict(
        {
            "loss": loss,
            "accuracy": compute_weighted_accuracy(logits, targets, weights),
            "weight_sum": weight_sum,
            "num_examples": targets.shape[0],
            "num_tokens": targets.size,
        }
    )
    return {**sums, **additional_metrics}


def count_packed_examples(segment_ids: jax.Array) -> jax.Array:
    """Counts the sequences that are packed into a batch, as SeqIO does for T5 (Raffel et al. 2019, section 3.1.2).

    ``segment_ids`` are int[batch, length], numbered from 1 in every row; the padding at the end of a row is 0.
    """
    # Every change of the id starts a sequence, or the padding.
    changes = jnp.sum(segment_ids[:, 1:] != segment_ids[:, :-1])
    rows_with_padding = jnp.sum(segment_ids[:, -1] == 0)
    return segment_ids.shape[0] + changes - rows_with_padding


def compute_base_metrics(
    logits: jax.Array,
    targets: jax.Array,
    mask: jax.Array | None,
    loss: jax.Array,
    z_loss: jax.Array | None = None,
    segment_ids: Mapping[str, jax.Array] | None = None,
) -> MetricsMap:
    """Makes the metrics that every model reports: accuracy, losses, speed, and how full the batch is.

    ``mask`` is the weight of each target, float[batch, length]. ``loss`` is summed over the batch and includes
    ``z_loss``. ``segment_ids`` are int[batch, length] by feature, 0 for padding. Arguments that are None are left out.
    Metrics whose names begin with ``timing/`` wait for a duration.
    """
    ratio = clu_metrics.Average  # from a total and a count
    # Arrays, because metrics pass through compiled functions.
    num_examples, num_tokens = jnp.array(targets.shape[0]), jnp.array(targets.size)
    num_devices = jax.device_count()
    weight = targets.size if mask is None else jnp.sum(mask)
    rates = {
        "seqs_per_second": num_examples,
        "seqs_per_second_per_core": num_examples / num_devices,
        "target_tokens_per_second": num_tokens,
        "target_tokens_per_second_per_core": num_tokens / num_devices,
    }
    metrics: dict[str, clu_metrics.Metric] = {
        "accuracy": clu_metrics.Accuracy.from_model_output(logits=logits, labels=targets.astype(jnp.int32), mask=mask),
        "loss": AveragePerStep(total=loss),
        "loss_per_nonpadding_target_token": ratio(loss, weight),
        "loss_per_all_target_tokens": ratio(loss, num_tokens),
        **{f"timing/{name}": TimeRate.from_model_output(numerator=total) for name, total in rates.items()},
        "timing/steps_per_second": StepsPerTime.from_model_output(),
        "timing/seconds": Time(),
        "timing/seqs": Sum(total=num_examples),
        "non_padding_fraction/loss_weights": ratio(weight, num_tokens),
    }
    if z_loss is not None:
        cross_entropy = loss - z_loss
        metrics |= {
            "z_loss": AveragePerStep(total=z_loss),
            "z_loss_per_all_target_tokens": ratio(z_loss, num_tokens),
            "cross_ent_loss": AveragePerStep(total=cross_entropy),
            "cross_ent_loss_per_all_target_tokens": ratio(jnp.sum(cross_entropy), num_tokens),
        }
    if segment_ids is not None:
        metrics |= _packing_metrics(segment_ids)
    return metrics


def _packing_metrics(segment_ids: Mapping[str, jax.Array]) -> MetricsMap:
    report: dict[str, clu_metrics.Metric] = {}
    all_used, all_positions = jnp.array(0), jnp.array(0)
    for feature, ids in segment_ids.items():
        if ids is None or ids.shape[1] == 0:
            continue
        used, positions = jnp.sum(ids != 0), jnp.array(ids.size)
        report[f"effective_batch_size/{feature}"] = AveragePerStep(total=count_packed_examples(ids))
        report[f"non_padding_fraction/{feature}"] = clu_metrics.Average(used, positions)
        all_used, all_positions = all_used + used, all_positions + positions
    report["non_padding_fraction/overall"] = clu_metrics.Average(all_used, all_positions)
    return report


def get_input_vocabulary(model: BaseTransformerModel) -> seqio.Vocabulary:
    """Returns the vocabulary of a model's inputs; Gin files pass it to functions that need one."""
    return model.input_vocabulary


def get_output_vocabulary(model: BaseTransformerModel) -> seqio.Vocabulary:
    """Returns the vocabulary of a model's targets; Gin files pass it to functions that need one."""
    return model.output_vocabulary
