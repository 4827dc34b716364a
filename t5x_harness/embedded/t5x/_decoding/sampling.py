"""Sampling decoder: greedy, temperature, top-k and nucleus sampling, with prompts and callbacks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from t5x._decoding import truncation
from t5x._decoding.beams import cache_map, flat_batch_beam_expand, unflatten_beam_dim
from t5x._decoding.state import Cache, DecodingState, TokensToLogits, like_cache

# At or below this temperature the likeliest token is taken.
MIN_TEMPERATURE = np.array(1e-4)
# Columns after the prompts, so that position i + 1 can be read and written whatever i is.
_SPARE = 2


@flax.struct.dataclass
class SamplingLoopState:
    """What the sampling loop carries from step to step.

    Attributes:
      step: int32 scalar, steps done.
      cur_index: int32[rows], position of the last token of every row.
      sequences: int32[rows, length + 2], prompts, overwritten by what is sampled. Position 0 is the start token.
      cache: The model's autoregressive cache.
      cur_token: int32[rows, 1], the last token.
      ended: bool[rows, 1], whether the row has its end token or has no room left.
      rng: The key that the next step splits.
      log_prob: float32[rows], summed log probability of the sampled tokens.
    """

    step: jax.Array
    cur_index: jax.Array
    sequences: jax.Array
    cache: Cache
    cur_token: jax.Array
    ended: jax.Array
    rng: jax.Array
    log_prob: jax.Array


StateCallbackFn = Callable[[SamplingLoopState], SamplingLoopState]
LogitCallbackFn = Callable[[jax.Array, SamplingLoopState], jax.Array]


def _is_on(setting: Any) -> bool:
    """Says whether a setting is in use; one that is traced may be."""
    return isinstance(setting, jax.core.Tracer) or bool(setting)


def _log_prob_of(token: jax.Array, logits: jax.Array) -> jax.Array:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], axis=-1)[:, 0]


@dataclasses.dataclass(frozen=True)
class _TokenChooser:
    """How one token is chosen from the logits of a step; fields as the arguments of `temperature_sample`."""

    temperature: jax.Array
    topk: int | jax.Array
    topp: float | jax.Array
    rescale_log_probs: bool

    def __call__(self, logits: jax.Array, rng: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Chooses from float[rows, vocabulary]: int32[rows] tokens, float32[rows] log probabilities."""
        if self.temperature.ndim == 0:
            return lax.cond(
                self.temperature > MIN_TEMPERATURE,
                lambda: self._sampled(logits, rng, self.temperature),
                lambda: self._likeliest(logits),
            )
        rows_each = logits.shape[0] // self.temperature.shape[0]
        temperature = jnp.repeat(self.temperature, rows_each)
        # Rows with temperatures of their own all draw with the same key, as in T5X: equal rows give equal tokens.
        one_row = functools.partial(self._sampled, rng=rng)
        token, log_prob = jax.vmap(lambda row, t: one_row(row[None], temperature=t))(logits, temperature)
        greedy_token, greedy_log_prob = self._likeliest(logits)
        warm = temperature > MIN_TEMPERATURE
        return jnp.where(warm, token[:, 0], greedy_token), jnp.where(warm, log_prob[:, 0], greedy_log_prob)

    def _sampled(self, logits: jax.Array, rng: jax.Array, temperature: jax.Array) -> tuple[jax.Array, jax.Array]:
        scaled = logits / jnp.maximum(temperature, MIN_TEMPERATURE)
        if _is_on(self.topk):
            scaled = truncation.keep_top_k(scaled, self.topk)
        if _is_on(self.topp):
            scaled = truncation.keep_top_p(scaled, self.topp)
        token = jax.random.categorical(rng, scaled).astype(jnp.int32)
        return token, _log_prob_of(token, scaled if self.rescale_log_probs else logits)

    def _likeliest(self, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
        token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        if self.rescale_log_probs:  # the distribution at temperature zero gives this token all probability
            return token, jnp.zeros(token.shape, jnp.float32)
        return token, _log_prob_of(token, logits)


def _last_positions(inputs: jax.Array, max_decode_steps: int | jax.Array | None) -> int | jax.Array:
    """Where rows must stop: at the end of the buffer, or a number of steps after each row's prompt."""
    length = inputs.shape[1]
    if max_decode_steps is None:
        return length
    if not isinstance(max_decode_steps, jax.core.Tracer) and max_decode_steps > length:
        raise ValueError(
            f"max_decode_steps={max_decode_steps} is more than the {length} positions of a sequence; raise the targets "
            "length of the task or lower max_decode_steps"
        )
    return jnp.minimum(length, jnp.sum(inputs != 0, axis=1) + max_decode_steps)


def _sample(
    inputs: jax.Array,
    cache: Cache,
    tokens_to_logits: TokensToLogits,
    eos_id: int,
    rng: jax.Array,
    choose: _TokenChooser,
    initial_index: jax.Array | None,
    stop_at: int | jax.Array,
    state_callback_fn: StateCallbackFn | None,
    logit_callback_fn: LogitCallbackFn | None,
) -> tuple[jax.Array, jax.Array]:
    """Samples one continuation of every row; int32[rows, length] tokens and float32[rows] log probabilities."""
    num_rows = inputs.shape[0]
    rows = jnp.arange(num_rows)
    buffer = jnp.pad(inputs, ((0, 0), (0, _SPARE)))
    # Ends in the prompt don't end the row.
    eos_in_prompt = jnp.sum(buffer == eos_id, axis=-1, keepdims=True)

    def step(state: SamplingLoopState) -> SamplingLoopState:
        if state_callback_fn is not None:
            state = state_callback_fn(state)
        draw, carry_on = jax.random.split(state.rng)
        logits, new_cache = tokens_to_logits(
            DecodingState(
                cur_index=state.cur_index,
                sequences=state.sequences[:, :-_SPARE],
                cur_token=state.cur_token,
                cache=state.cache,
            )
        )
        if logit_callback_fn is not None:
            logits = logit_callback_fn(logits, state)
        token, log_prob = choose(logits, draw)

        here = jnp.minimum(state.cur_index, stop_at)
        prompt_token = state.sequences[rows, here + 1]
        is_free = prompt_token == 0
        ended = state.ended[:, 0]
        token = jnp.where(ended, 0, jnp.where(is_free, token, prompt_token))
        sequences = state.sequences.at[rows, here + 1].set(token)
        has_eos = jnp.sum(sequences == eos_id, axis=-1, keepdims=True) > eos_in_prompt
        return SamplingLoopState(
            step=state.step + 1,
            cur_index=here + 1,
            sequences=sequences,
            cache=like_cache(new_cache, state.cache),
            cur_token=token[:, None],
            ended=state.ended | has_eos | (here >= stop_at - 1)[:, None],
            rng=carry_on,
            log_prob=state.log_prob + jnp.where(is_free & ~ended, log_prob, 0),
        )

    start = jnp.zeros(num_rows, jnp.int32) if initial_index is None else initial_index
    state = SamplingLoopState(
        step=jnp.zeros((), jnp.int32),
        cur_index=start,
        sequences=buffer,
        cache=cache,
        cur_token=jnp.zeros((num_rows, 1), jnp.int32) if initial_index is None else buffer[rows, start][:, None],
        ended=jnp.zeros((num_rows, 1), jnp.bool_),
        rng=rng,
        log_prob=jnp.zeros(num_rows, jnp.float32),
    )
    state = lax.while_loop(lambda state: ~jnp.all(state.ended), step, state)
    if state_callback_fn is not None:
        state = state_callback_fn(state)
    return state.sequences[:, 1 : inputs.shape[1] + 1], state.log_prob


def temperature_sample(
    inputs: jax.Array,
    cache: Cache,
    tokens_to_logits: TokensToLogits,
    eos_id: int,
    decode_rng: jax.Array | None = None,
    num_decodes: int = 1,
    temperature: float | jax.Array = 1.0,
    topk: int = 1,
    topp: float = 0.0,
    cache_offset: int = 0,
    initial_index: jax.Array | None = None,
    max_decode_steps: int | jax.Array | None = None,
    max_decode_steps_hard_limit: int | None = None,
    rescale_log_probs: bool = True,
    state_callback_fn: StateCallbackFn | None = None,
    logit_callback_fn: LogitCallbackFn | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Continues prompts by sampling one token after the other.

    With the default `topk=1` the likeliest token is taken. Set `topk=0` to sample from the whole vocabulary.

    Args:
      inputs: int32[batch, length], prompts as decoder inputs: the start token, the prompt, then zeros. The zeros are
        filled in. All zeros means no prompt.
      cache: The model's autoregressive cache for `batch` rows.
      tokens_to_logits: The model: from a `DecodingState` of batch * num_decodes rows to float[rows, vocabulary] logits
        and the next cache.
      eos_id: The token that ends a sequence.
      decode_rng: Key for sampling; `jax.random.PRNGKey(0)` if None.
      num_decodes: Continuations of each prompt.
      temperature: What logits are divided by: a scalar, or float[batch] for a temperature of its own for each prompt.
        At 0 the likeliest token is taken.
      topk: Sample among the `topk` likeliest tokens only; 0 for all.
      topp: Sample among the likeliest tokens that together have this probability only; 0 for all.
      cache_offset: Where the batch axis of the cache entries is; 1 for scanned layers.
      initial_index: int32[batch], the position of the last prompt token if the cache is prefilled up to there.
      max_decode_steps: The most tokens to add to each prompt; as many as fit if None.
      max_decode_steps_hard_limit: A limit on `max_decode_steps`, for when that comes from a request. 0 or None for no
        limit.
      rescale_log_probs: Whether log probabilities are those of the distribution that is sampled from (after temperature
        and truncation) or those of the model.
      state_callback_fn: Changes the loop state before every step and after the last, e.g. to stream tokens.
      logit_callback_fn: Changes float[rows, vocabulary] logits before a token is chosen, e.g. to forbid tokens.

    Returns:
      int32[batch, num_decodes, length] sequences without the start token, and float32[batch, num_decodes] log
      probabilities. The likeliest comes last.

    Raises:
      ValueError: Both `topk` and `topp` are set, or `max_decode_steps` is more than the length.
    """
    if not any(isinstance(setting, jax.core.Tracer) for setting in (topk, topp)) and topk and topp:
        raise ValueError(
            f"topk={topk} and topp={topp} cannot both be on: set one of them to 0 (topk is 1 unless it is set)"
        )
    if max_decode_steps is not None and max_decode_steps_hard_limit is not None and max_decode_steps_hard_limit > 0:
        max_decode_steps = jnp.minimum(max_decode_steps, max_decode_steps_hard_limit)

    batch_size = inputs.shape[0]
    if num_decodes > 1:
        inputs = flat_batch_beam_expand(inputs, num_decodes)
        repeat = functools.partial(flat_batch_beam_expand, beam_size=num_decodes, offset=cache_offset)
        cache = cache_map(repeat, cache, apply_to_index=initial_index is not None)
        if initial_index is not None:
            initial_index = flat_batch_beam_expand(initial_index, num_decodes)

    sequences, log_prob = _sample(
        inputs,
        cache,
        tokens_to_logits,
        eos_id,
        jax.random.PRNGKey(0) if decode_rng is None else decode_rng,
        _TokenChooser(jnp.asarray(temperature), topk, topp, rescale_log_probs),
        initial_index,
        _last_positions(inputs, max_decode_steps),
        state_callback_fn,
        logit_callback_fn,
    )
    sequences = unflatten_beam_dim(sequences, batch_size, num_decodes)
    log_prob = unflatten_beam_dim(log_prob, batch_size, num_decodes)
    worst_first = jnp.argsort(log_prob, axis=-1)
    return (
        jnp.take_along_axis(sequences, worst_first[..., None], axis=1),
        jnp.take_along_axis(log_prob, worst_first, axis=-1),
    )
