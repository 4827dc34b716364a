"""Autoregressive decoding: beam search, sampling, and the array operations that they are built from.

A decoder gets the model as a function from a ``DecodingState`` to logits and a new cache, so it works with any network.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from flax.core import FrozenDict, freeze, unfreeze
from jax import lax
from t5x import binary_search

PyTree = Any
PyTreeDef = jax.tree_util.PyTreeDef
Cache = Mapping[str, Any]

# Finite, so that sums and products of masked scores never become NaN.
NEG_INF_VALUE = -1.0e7
NEG_INF = np.array(NEG_INF_VALUE)


@flax.struct.dataclass
class DecodingState:
    """The model's input for the next token. A row is one sequence, or one beam of one sequence.

    Attributes:
        cur_index: int32 scalar or int32[rows], position of ``cur_token``.
        sequences: int32[rows, length], the tokens so far.
        cur_token: int32[rows, 1], the token to continue from.
        cache: the model's autoregressive cache.
    """

    cur_index: jax.Array
    sequences: jax.Array
    cur_token: jax.Array
    cache: Cache


TokensToLogits = Callable[[DecodingState], tuple[jax.Array, Cache]]


def _like_cache(new: Cache, old: Cache) -> Cache:
    """Freezes ``new`` if ``old`` is frozen: a loop must keep the type of its carry, and Flax mixes the two types."""
    return freeze(new) if isinstance(old, FrozenDict) else new


# Cache entries that all rows share, which have no batch axis.
_SHARED_ENTRIES = frozenset({"cached_bias", "position_embedder_index"})
_INDEX_ENTRY = "cache_index"
_TPU_LANES = 128


def brevity_penalty(alpha: float, length: int | jax.Array) -> jax.Array:
    """Returns the divisor that lets long sequences compete with short ones: ((5 + length) / 6) ** alpha.

    It divides summed log probabilities; from Wu et al. 2016, arXiv:1609.08144.
    """
    return jnp.power((5.0 + length) / 6.0, alpha)


def cache_map(fn: Callable[[jax.Array], Any], cache: Cache, apply_to_index: bool = False) -> Cache:
    """Applies ``fn`` to the cache entries that have a batch axis; shared entries are unchanged.

    ``cache_index`` entries have a batch axis only after a prefill; set ``apply_to_index`` then.
    """
    left_alone = _SHARED_ENTRIES if apply_to_index else _SHARED_ENTRIES | {_INDEX_ENTRY}
    plain = unfreeze(cache) if isinstance(cache, FrozenDict) else cache
    mapped = {
        path: value if path[-1] in left_alone else jax.tree.map(fn, value)
        for path, value in traverse_util.flatten_dict(plain).items()
    }
    return _like_cache(traverse_util.unflatten_dict(mapped), cache)


def add_beam_dim(x: jax.Array, beam_size: int, offset: int = 0) -> jax.Array:
    """Repeats rows: [batch, ...] becomes [batch, beam, ...]. ``offset`` is the batch axis: 1 for scanned layers."""
    axis = offset + 1
    shape = (*x.shape[:axis], beam_size, *x.shape[axis:])
    return jnp.broadcast_to(jnp.expand_dims(x, axis), shape)


def flatten_beam_dim(x: jax.Array, offset: int = 0) -> jax.Array:
    """Merges the batch and the beam axis: [batch, beam, ...] becomes [batch * beam, ...]."""
    batch, beams = x.shape[offset : offset + 2]
    return x.reshape(*x.shape[:offset], batch * beams, *x.shape[offset + 2 :])


def unflatten_beam_dim(x: jax.Array, batch_size: int, beam_size: int, offset: int = 0) -> jax.Array:
    """Splits rows, batch_size * beam_size of them: [batch * beam, ...] becomes [batch, beam, ...]."""
    rows = x.shape[offset]
    if rows != batch_size * beam_size:
        raise AssertionError(f"{rows} rows cannot be split into {batch_size} sequences of {beam_size} beams")
    return x.reshape(*x.shape[:offset], batch_size, beam_size, *x.shape[offset + 1 :])


def flat_batch_beam_expand(x: jax.Array, beam_size: int, offset: int = 0) -> jax.Array:
    """Repeats every row ``beam_size`` times in place: [batch, ...] becomes [batch * beam, ...]."""
    return flatten_beam_dim(add_beam_dim(x, beam_size, offset), offset)


def _beam_picker(
    beam_indices: jax.Array, batch_size: int, old_beam_size: int, new_beam_size: int, one_hot: bool, offset: int = 0
) -> Callable[[jax.Array], jax.Array]:
    """Makes the function that picks beams of one array; the arguments are those of ``cache_gather_beams``."""
    if offset not in (0, 1):
        raise AssertionError(f"the batch axis must be the first or the second, but offset is {offset}")
    if one_hot:
        # A contraction, which is much faster on TPUs than a gather.
        chosen = jax.nn.one_hot(beam_indices, old_beam_size, dtype=jnp.int32)
        equation = "bno,bo...->bn..." if offset == 0 else "bno,lbo...->lbn..."
        return lambda x: jnp.einsum(equation, chosen, x).astype(x.dtype)
    rows = jnp.broadcast_to(jnp.arange(batch_size)[:, None], (batch_size, new_beam_size))
    return lambda x: x[(slice(None),) * offset + (rows, beam_indices)]


def cache_gather_beams(
    nested: Cache,
    beam_indices: jax.Array,
    batch_size: int,
    old_beam_size: int,
    new_beam_size: int,
    one_hot: bool = True,
    offset: int = 0,
) -> Cache:
    """Picks beams of every entry of a cache: [batch, old_beam, ...] becomes [batch, new_beam, ...].

    ``beam_indices``, int[batch, new_beam], has the old beam that each new one continues. With ``one_hot``, they are
    picked by a matrix product (fast on TPU) instead of by indexing; the values are the same.

    Raises:
        AssertionError: ``offset``, the batch axis, is neither 0 nor 1.
    """
    return cache_map(_beam_picker(beam_indices, batch_size, old_beam_size, new_beam_size, one_hot, offset), nested)


def gather_beams(
    nested: PyTree,
    beam_indices: jax.Array,
    batch_size: int,
    old_beam_size: int,
    new_beam_size: int,
    one_hot: bool = True,
) -> PyTree:
    """Picks beams of every array of a tree; like ``cache_gather_beams``, but for every array."""
    return jax.tree.map(_beam_picker(beam_indices, batch_size, old_beam_size, new_beam_size, one_hot), nested)


def gather_topk_beams(nested: PyTree, score_or_log_prob: jax.Array, batch_size: int, new_beam_size: int) -> PyTree:
    """Picks the beams with the best float[batch, beam] scores, the best one last, of arrays [batch, beam, ...]."""
    best_first = lax.top_k(score_or_log_prob, new_beam_size)[1]
    return gather_beams(nested, best_first[:, ::-1], batch_size, score_or_log_prob.shape[1], new_beam_size)


def top_k_two_stage(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Returns the k largest values of every row, in two passes if that is faster on TPUs.

    A small batch of long rows leaves most lanes of a TPU idle. So each row is cut into one piece per lane, and the best
    of the pieces compete in a second pass. The result equals that of ``jax.lax.top_k``, including ties.

    Returns:
        float[batch, k] values in descending order and int32[batch, k] positions.
    """
    batch, length = x.shape
    # An exported program may have a symbolic batch size, which is not a number.
    if not isinstance(batch, int) or batch > 8 or length <= 8 * _TPU_LANES * k:
        return lax.top_k(x, k)
    pieces = jnp.pad(x, ((0, 0), (0, -length % _TPU_LANES)), constant_values=-jnp.inf).reshape(batch, _TPU_LANES, -1)
    values, positions = lax.top_k(pieces, k)  # [batch, lanes, k]
    positions += pieces.shape[-1] * jnp.arange(_TPU_LANES)[:, None]
    values, winners = lax.top_k(values.reshape(batch, -1), k)  # [batch, k] of [batch, lanes * k]
    return values, jnp.take_along_axis(positions.reshape(batch, -1), winners, axis=1)


def _shift_right(tokens: jax.Array, by: jax.Array) -> jax.Array:
    """Shifts every row by its own distance and fills with zeros, all rows by one power of two after another.

    That is faster on TPUs than a gather.
    """
    for bit in range(tokens.shape[1].bit_length()):
        padded = jnp.pad(tokens, ((0, 0), (1 << bit, 0)))[:, : tokens.shape[1]]
        tokens = jnp.where((by >> bit & 1)[:, None] == 1, padded, tokens)
    return tokens


def _right_align_prompts(prompts: jax.Array) -> jax.Array:
    """Shifts int[rows, length] prompts until the last token that is not padding is in the last column."""
    length = prompts.shape[1]
    last_token = jnp.max(jnp.where(prompts != 0, jnp.arange(length), 0), axis=1)
    return _shift_right(prompts, length - 1 - last_token)


def _left_align_prompts(prompts: jax.Array) -> jax.Array:
    """Shifts int[rows, length] prompts until the first token that is not padding is in the first column."""
    first_token = jnp.argmax(prompts != 0, axis=1)  # 0 for rows of padding only
    return _shift_right(prompts[:, ::-1], first_token)[:, ::-1]


# At or below this temperature the likeliest token is chosen.
MIN_TEMPERATURE = np.array(1e-4)

# Columns after the prompts, so that position i + 1 can be read and written for every i.
_SPARE = 2


@flax.struct.dataclass
class SamplingLoopState:
    """The carry of the sampling loop.

    Attributes:
        step: int32 scalar, steps done.
        cur_index: int32[rows], position of the last token of every row.
        sequences: int32[rows, length + 2], prompts, overwritten by sampled tokens. Position 0 is the start token.
        cache: the model's autoregressive cache.
        cur_token: int32[rows, 1], the last token.
        ended: bool[rows, 1], whether the row has its end token or has no room left.
        rng: the key that the next step splits.
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
    """Returns whether a setting is in use; a traced one may be."""
    return isinstance(setting, jax.core.Tracer) or bool(setting)


def _token_at(sequences: jax.Array, position: jax.Array) -> jax.Array:
    """Reads one column of every row, int[rows], row by row, so that a mesh need not move rows between devices."""
    return jnp.take_along_axis(sequences, position[:, None], axis=1)[:, 0]


def _log_prob_of(token: jax.Array, logits: jax.Array) -> jax.Array:
    return _token_at(jax.nn.log_softmax(logits), token)


def _choose_token(
    logits: jax.Array,
    rng: jax.Array,
    temperature: jax.Array,
    topk: int | jax.Array,
    topp: float | jax.Array,
    rescale_log_probs: bool,
) -> tuple[jax.Array, jax.Array]:
    """Chooses from float[rows, vocabulary]: int32[rows] tokens, float32[rows] log probabilities."""

    def sampled(logits: jax.Array, temperature: jax.Array) -> tuple[jax.Array, jax.Array]:
        scaled = logits / jnp.maximum(temperature, MIN_TEMPERATURE)
        if _is_on(topk):
            scaled = lax.cond(topk > 0, lambda x: binary_search.topk_mask(x, topk, NEG_INF), lambda x: x, scaled)
        if _is_on(topp):
            # T5X rules out every token if a traced p is 0, which makes all of them equally likely; so does this code.
            scaled = binary_search.topp_mask(scaled, topp, NEG_INF)
        token = jax.random.categorical(rng, scaled).astype(jnp.int32)
        return token, _log_prob_of(token, scaled if rescale_log_probs else logits)

    def likeliest() -> tuple[jax.Array, jax.Array]:
        token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        if rescale_log_probs:  # the distribution at temperature zero gives this token all probability
            return token, jnp.zeros(token.shape, jnp.float32)
        return token, _log_prob_of(token, logits)

    if temperature.ndim == 0:
        return lax.cond(temperature > MIN_TEMPERATURE, lambda: sampled(logits, temperature), likeliest)
    temperature = jnp.repeat(temperature, logits.shape[0] // temperature.shape[0])  # [rows]
    # Rows with their own temperatures all draw with the same key, as in T5X: equal rows give equal tokens.
    token, log_prob = jax.vmap(lambda row, t: sampled(row[None], t))(logits, temperature)  # [rows, 1]
    greedy_token, greedy_log_prob = likeliest()
    warm = temperature > MIN_TEMPERATURE
    return jnp.where(warm, token[:, 0], greedy_token), jnp.where(warm, log_prob[:, 0], greedy_log_prob)


def _last_positions(inputs: jax.Array, max_decode_steps: int | jax.Array | None) -> int | jax.Array:
    """Returns the position at which each row must stop: the buffer's end, or a number of steps after its prompt."""
    length = inputs.shape[1]
    if max_decode_steps is None:
        return length
    if not isinstance(max_decode_steps, jax.core.Tracer) and max_decode_steps > length:
        raise ValueError(
            "Cannot decode more steps than the sequence length. "
            f"max_decode_steps={max_decode_steps} is more than the {length} positions of a sequence; raise the targets "
            "length of the task or lower max_decode_steps"
        )
    return jnp.minimum(length, jnp.sum(inputs != 0, axis=1) + max_decode_steps)


def _temperature_sample_single_trial(
    inputs: jax.Array,
    cache: Cache,
    tokens_to_logits: TokensToLogits,
    eos_id: int,
    prng_key: jax.Array,
    temperature: float | jax.Array = 1.0,
    topk: int | jax.Array = 20,
    topp: float | jax.Array = 0.0,
    initial_index: jax.Array | None = None,
    max_decode_steps: int | jax.Array | None = None,
    rescale_log_probs: bool = True,
    state_callback_fn: StateCallbackFn | None = None,
    logit_callback_fn: LogitCallbackFn | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Samples one continuation of every row; int32[rows, length] tokens and float32[rows] log probabilities."""
    if not any(isinstance(setting, jax.core.Tracer) for setting in (topk, topp)) and topk and topp:
        raise ValueError(
            "At most one of `topp` or `topk` may be non-zero. "
            f"topk={topk} and topp={topp} cannot both be on: set one of them to 0 (topk is 1 unless it is set)"
        )
    temperature = jnp.asarray(temperature)
    stop_at = _last_positions(inputs, max_decode_steps)
    num_rows = inputs.shape[0]
    buffer = jnp.pad(inputs, ((0, 0), (0, _SPARE)))  # [rows, length + 2]
    columns = jnp.arange(buffer.shape[1])
    # Ends in the prompt don't end the row.
    eos_in_prompt = jnp.sum(buffer == eos_id, axis=-1, keepdims=True)  # [rows, 1]

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
        token, log_prob = _choose_token(logits, draw, temperature, topk, topp, rescale_log_probs)  # [rows] each

        here = jnp.minimum(state.cur_index, stop_at)  # [rows]
        prompt_token = _token_at(state.sequences, here + 1)
        is_free = prompt_token == 0
        ended = state.ended[:, 0]
        token = jnp.where(ended, 0, jnp.where(is_free, token, prompt_token))
        # Not a scatter, which on a mesh needs the tokens of all devices' rows.
        sequences = jnp.where(columns == (here + 1)[:, None], token[:, None], state.sequences)  # [rows, length + 2]
        has_eos = jnp.sum(sequences == eos_id, axis=-1, keepdims=True) > eos_in_prompt
        return SamplingLoopState(
            step=state.step + 1,
            cur_index=here + 1,
            sequences=sequences,
            cache=_like_cache(new_cache, state.cache),
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
        cur_token=jnp.zeros((num_rows, 1), jnp.int32) if initial_index is None else _token_at(buffer, start)[:, None],
        ended=jnp.zeros((num_rows, 1), jnp.bool_),
        rng=prng_key,
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
    """Continues prompts by sampling one token after another.

    With the default ``topk=1`` the likeliest token is chosen. Set ``topk=0`` to sample from the whole vocabulary.

    Args:
        inputs: int32[batch, length], prompts as decoder inputs: the start token, the prompt, then zeros to be
            filled in. All zeros mean no prompt.
        cache: the model's autoregressive cache for ``batch`` rows.
        tokens_to_logits: the model: from a ``DecodingState`` of batch * num_decodes rows to float[rows, vocabulary]
            logits and the next cache.
        eos_id: the token that ends a sequence.
        decode_rng: key for sampling; ``jax.random.PRNGKey(0)`` if None.
        num_decodes: continuations of each prompt.
        temperature: the divisor of logits: a scalar, or float[batch] for a different temperature per prompt.
            At 0 the likeliest token is chosen.
        topk: sample among the ``topk`` likeliest tokens only (Fan et al. 2018, arXiv:1805.04833); 0 for all.
        topp: sample among the likeliest tokens that together have this probability only (Holtzman et al. 2019,
            arXiv:1904.09751); 0 for all.
        cache_offset: the batch axis of the cache entries; 1 for scanned layers.
        initial_index: int32[batch], the position of the last prompt token if the cache is prefilled up to there.
        max_decode_steps: the most tokens to add to each prompt; as many as fit if None.
        max_decode_steps_hard_limit: a limit on ``max_decode_steps``, which may come from a request. 0 or None for
            no limit.
        rescale_log_probs: whether log probabilities are those of the distribution that is sampled from (after
            temperature and truncation) or those of the model.
        state_callback_fn: changes the loop state before every step and after the last, e.g. to stream tokens.
        logit_callback_fn: changes float[rows, vocabulary] logits before a token is chosen, e.g. to forbid tokens.

    Returns:
        int32[batch, num_decodes, length] sequences without the start token, and float32[batch, num_decodes] log
        probabilities. The likeliest comes last.

    Raises:
        ValueError: both ``topk`` and ``topp`` are set, or ``max_decode_steps`` is more than the length.
    """
    if max_decode_steps is not None and max_decode_steps_hard_limit is not None and max_decode_steps_hard_limit > 0:
        max_decode_steps = jnp.minimum(max_decode_steps, max_decode_steps_hard_limit)

    batch_size = inputs.shape[0]
    if num_decodes > 1:
        inputs = flat_batch_beam_expand(inputs, num_decodes)
        repeat = functools.partial(flat_batch_beam_expand, beam_size=num_decodes, offset=cache_offset)
        cache = cache_map(repeat, cache, apply_to_index=initial_index is not None)
        if initial_index is not None:
            initial_index = flat_batch_beam_expand(initial_index, num_decodes)

    sequences, log_prob = _temperature_sample_single_trial(
        inputs,
        cache,
        tokens_to_logits,
        eos_id,
        jax.random.PRNGKey(0) if decode_rng is None else decode_rng,
        temperature=temperature,
        topk=topk,
        topp=topp,
        initial_index=initial_index,
        max_decode_steps=max_decode_steps,
        rescale_log_probs=rescale_log_probs,
        state_callback_fn=state_callback_fn,
        logit_callback_fn=logit_callback_fn,
    )
    sequences = unflatten_beam_dim(sequences, batch_size, num_decodes)
    log_prob = unflatten_beam_dim(log_prob, batch_size, num_decodes)
    worst_first = jnp.argsort(log_prob, axis=-1)
    return (
        jnp.take_along_axis(sequences, worst_first[..., None], axis=1),
        jnp.take_along_axis(log_prob, worst_first, axis=-1),
    )


@flax.struct.dataclass
class BeamState:
    """The carry of the beam search loop. In every batch row, the best beam is last.

    Attributes:
        cur_index: int32 scalar, position of the last token of the live beams.
        live_logprobs: float32[batch, beam], summed log probabilities of the live beams.
        finished_scores: float32[batch, beam], log probabilities of the finished beams divided by the brevity penalty.
        live_seqs: int32[batch, beam, length], beams without an end token.
        finished_seqs: int32[batch, beam, length], beams with one.
        finished_flags: bool[batch, beam], which of the finished slots are in use.
        cache: the model's autoregressive cache, with a beam axis.
        initial_index: int32[batch], tokens that were in the cache before the search began.
    """

    cur_index: jax.Array
    live_logprobs: jax.Array
    finished_scores: jax.Array
    live_seqs: jax.Array
    finished_seqs: jax.Array
    finished_flags: jax.Array
    cache: Cache
    initial_index: jax.Array | None


def _one_alive(slots: int) -> jax.Array:
    """Makes float32[slots] log probabilities with which only the first beam can win."""
    return jnp.where(jnp.arange(slots) == 0, 0.0, NEG_INF_VALUE)


def beam_init(
    batch_size: int,
    beam_size: int,
    max_decode_len: int,
    cache: Cache,
    offset: int = 0,
    live_seqs: jax.Array | None = None,
    initial_index: jax.Array | None = None,
) -> BeamState:
    """Makes the initial state of a beam search; all beams are equal at first, so only the first one may live.

    With a prefilled cache, ``live_seqs``, int32[batch, beam, max_decode_len], are the sequences to continue, and
    ``initial_index``, int32[batch], is how many tokens the cache holds; it has no beam axis yet. ``max_decode_len``
    counts the start token.
    """
    slots = (batch_size, beam_size)
    nothing = jnp.zeros((*slots, max_decode_len), jnp.int32)
    return BeamState(
        cur_index=jnp.array(0),
        live_logprobs=jnp.broadcast_to(_one_alive(beam_size), slots),
        finished_scores=jnp.full(slots, NEG_INF_VALUE, jnp.float32),
        live_seqs=nothing if live_seqs is None else live_seqs,
        finished_seqs=nothing,
        finished_flags=jnp.zeros(slots, jnp.bool_),
        cache=cache_map(lambda x: add_beam_dim(x, beam_size, offset), cache, apply_to_index=live_seqs is not None),
        initial_index=initial_index,
    )


def _candidates(state: BeamState, log_probs: jax.Array, prompts: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Picks the best continuations; twice as many as beams, because up to half of them may end.

    They are int32[batch, 2 * beam, length] sequences, the beam that each continues, and its summed log probability.
    """
    batch_size, beam_size, vocabulary = log_probs.shape
    total = (log_probs + state.live_logprobs[..., None]).reshape(batch_size, -1)  # [batch, beam * vocabulary]
    best, choice = top_k_two_stage(total, 2 * beam_size)  # [batch, 2 * beam]
    origin, token = choice // vocabulary, choice % vocabulary

    # Inside a prompt there is one continuation, which costs nothing; the other candidates must lose.
    prompt_token = prompts[:, state.cur_index + 1, None].astype(jnp.int32)  # [batch, 1]
    is_free = prompt_token == 0
    token = token * is_free + prompt_token * ~is_free
    best = best * is_free + _one_alive(best.shape[1]) * ~is_free

    sequences = gather_beams(state.live_seqs, origin, batch_size, beam_size, best.shape[1])
    sequences = lax.dynamic_update_slice_in_dim(sequences, token[..., None], state.cur_index + 1, axis=2)
    return sequences, origin, best


def beam_search(
    inputs: jax.Array,
    cache: Cache,
    tokens_to_logits: TokensToLogits,
    eos_id: int,
    num_decodes: int = 4,
    alpha: float = 0.6,
    max_decode_len: int | None = None,
    max_decode_step: int = -1,
    min_log_prob: float = NEG_INF_VALUE,
    decode_rng: jax.Array | None = None,
    cache_offset: int = 0,
    initial_index: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Searches for continuations of prompts with the best length-corrected log probability.

    ``num_decodes`` is the number of beams, ``alpha`` the exponent of the ``brevity_penalty``, ``max_decode_len`` the
    largest number of tokens in a sequence (as many as ``inputs`` has if None), and ``max_decode_step`` the largest
    number of steps, if it's positive. The search stops when no live beam can reach ``min_log_prob``, and draws no
    random numbers: ``decode_rng`` isn't read. The other arguments are those of ``temperature_sample``.

    Returns:
        int32[batch, num_decodes, max_decode_len] sequences without the start token, and float32[batch, num_decodes]
        scores. The best comes last. A row in which no beam ended gives its live beams and their log probabilities.
    """
    del decode_rng
    inputs = jnp.asarray(inputs)  # the loop indexes them with a traced index
    batch_size, input_length = inputs.shape
    length = (input_length if max_decode_len is None else max_decode_len) + 1
    live_seqs = None
    prompt = None
    if initial_index is None:
        initial_index = jnp.zeros(batch_size, jnp.int32)
    else:
        # The search continues from the last token of each prompt as if that were the start token.
        prompt = _right_align_prompts(inputs)
        last = prompt[:, -1:]
        inputs = jnp.pad(last, ((0, 0), (0, input_length - 1)))
        live_seqs = add_beam_dim(jnp.pad(last, ((0, 0), (0, length - 1))), num_decodes)

    longest_penalty = brevity_penalty(alpha, length)

    def goes_on(state: BeamState) -> jax.Array:
        """Returns whether another step can change the result (a bool scalar)."""
        best_live = state.live_logprobs[:, -1:] / longest_penalty
        worst_finished = jnp.min(state.finished_scores, axis=1, keepdims=True)
        worst_finished = jnp.where(state.finished_flags, worst_finished, NEG_INF_VALUE)
        settled = jnp.all(worst_finished > best_live)
        hopeless = (state.cur_index > 0) & jnp.all(best_live < min_log_prob / longest_penalty)
        has_room = state.cur_index + jnp.min(state.initial_index) < length - 1
        out_of_steps = (max_decode_step > 0) & (state.cur_index >= max_decode_step)
        return has_room & ~settled & ~hopeless & ~out_of_steps

    def step(state: BeamState) -> BeamState:
        """Extends all live beams by one token and keeps the best ones, live and finished."""
        last_tokens = lax.dynamic_slice_in_dim(state.live_seqs, state.cur_index, 1, axis=2)  # [batch, beam, 1]
        logits, cache = tokens_to_logits(
            DecodingState(
                cur_index=state.cur_index,
                sequences=flatten_beam_dim(state.live_seqs),
                cur_token=flatten_beam_dim(last_tokens),
                cache=cache_map(lambda x: flatten_beam_dim(x, cache_offset), state.cache),
            )
        )
        log_probs = jax.nn.log_softmax(unflatten_beam_dim(logits, batch_size, num_decodes))  # [batch, beam, vocabulary]
        candidates, origin, candidate_log_probs = _candidates(state, log_probs, inputs)  # [batch, 2 * beam, ...]
        ends = candidates[:, :, state.cur_index + 1] == eos_id  # [batch, 2 * beam]

        alive_log_probs = candidate_log_probs + jnp.where(ends, NEG_INF_VALUE, 0.0)
        live_seqs, live_logprobs, live_origin = gather_topk_beams(
            (candidates, alive_log_probs, origin), alive_log_probs, batch_size, num_decodes
        )
        cache = cache_map(lambda x: unflatten_beam_dim(x, batch_size, num_decodes, cache_offset), cache)
        cache = cache_gather_beams(cache, live_origin, batch_size, num_decodes, num_decodes, offset=cache_offset)

        lengths = state.initial_index[:, None] + state.cur_index + 1  # [batch, 1]
        scores = candidate_log_probs / brevity_penalty(alpha, lengths) + jnp.where(ends, 0.0, NEG_INF_VALUE)
        finished = (
            jnp.concatenate([state.finished_seqs, candidates], axis=1),
            jnp.concatenate([state.finished_scores, scores], axis=1),
            jnp.concatenate([state.finished_flags, ends], axis=1),
        )
        finished_seqs, finished_scores, finished_flags = gather_topk_beams(
            finished, finished[1], batch_size, num_decodes
        )
        return state.replace(
            cur_index=state.cur_index + 1,
            live_logprobs=live_logprobs,
            finished_scores=finished_scores,
            live_seqs=live_seqs,
            finished_seqs=finished_seqs,
            finished_flags=finished_flags,
            cache=cache,
        )

    start = beam_init(batch_size, num_decodes, length, cache, cache_offset, live_seqs, initial_index)
    end = lax.while_loop(goes_on, step, start)

    any_finished = jnp.any(end.finished_flags, axis=1)[:, None]  # [batch, 1]
    scores = jnp.where(any_finished, end.finished_scores, end.live_logprobs)
    sequences = jnp.where(any_finished[..., None], end.finished_seqs, end.live_seqs)[:, :, 1:]
    if prompt is not None:
        # [batch, beam, prompt + length]
        whole = jnp.concatenate([add_beam_dim(prompt, num_decodes), sequences], axis=-1)
        aligned = _left_align_prompts(flatten_beam_dim(whole))
        sequences = unflatten_beam_dim(aligned, batch_size, num_decodes)[:, :, : length - 1]
    return sequences, scores
