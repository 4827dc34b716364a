"""Beam search with a brevity penalty, prompts, and early stopping."""

from __future__ import annotations

import dataclasses
import functools

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax
from t5x._decoding import prompts
from t5x._decoding.beams import (
    add_beam_dim,
    brevity_penalty,
    cache_gather_beams,
    cache_map,
    flatten_beam_dim,
    gather_beams,
    gather_topk_beams,
    top_k_two_stage,
    unflatten_beam_dim,
)
from t5x._decoding.state import NEG_INF_VALUE, Cache, DecodingState, TokensToLogits


@flax.struct.dataclass
class BeamState:
    """What the beam search loop carries from step to step. In every batch row the best beam stands last.

    Attributes:
      cur_index: int32 scalar, position of the last token of the live beams.
      live_logprobs: float32[batch, beam], summed log probabilities of the live beams.
      finished_scores: float32[batch, beam], log probabilities of the finished beams divided by the brevity penalty.
      live_seqs: int32[batch, beam, length], beams without an end token.
      finished_seqs: int32[batch, beam, length], beams with one.
      finished_flags: bool[batch, beam], which of the finished slots are in use.
      cache: The model's autoregressive cache, with a beam axis.
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


def beam_init(
    batch_size: int,
    beam_size: int,
    max_decode_len: int,
    cache: Cache,
    offset: int = 0,
    live_seqs: jax.Array | None = None,
    initial_index: jax.Array | None = None,
) -> BeamState:
    """Makes the state that a beam search starts from.

    Args:
      batch_size: Number of sequences.
      beam_size: Beams of each. All are equal at first, so only the first one may live.
      max_decode_len: Positions of a sequence, the start token included.
      cache: The model's autoregressive cache, without a beam axis.
      offset: Where the batch axis of the cache entries is.
      live_seqs: int32[batch, beam, max_decode_len] to go on from, with a cache that is prefilled; zeros if None.
      initial_index: int32[batch], how many tokens the prefilled cache holds.

    Returns:
      The state before the first step.
    """
    slots = (batch_size, beam_size)
    nothing = jnp.zeros((*slots, max_decode_len), jnp.int32)
    return BeamState(
        cur_index=jnp.array(0),
        live_logprobs=jnp.full(slots, NEG_INF_VALUE, jnp.float32).at[:, 0].set(0.0),
        finished_scores=jnp.full(slots, NEG_INF_VALUE, jnp.float32),
        live_seqs=nothing if live_seqs is None else live_seqs,
        finished_seqs=nothing,
        finished_flags=jnp.zeros(slots, jnp.bool_),
        cache=cache_map(lambda x: add_beam_dim(x, beam_size, offset), cache, apply_to_index=live_seqs is not None),
        initial_index=initial_index,
    )


@dataclasses.dataclass(frozen=True)
class _Search:
    """One beam search; fields as the arguments of `beam_search`, with every default filled in.

    Attributes:
      length: Positions of a sequence, the start token included.
    """

    inputs: jax.Array
    tokens_to_logits: TokensToLogits
    eos_id: int
    beam_size: int
    alpha: float
    length: int
    max_decode_step: int
    min_log_prob: float
    cache_offset: int

    @property
    def _split(self) -> dict[str, int]:
        return {"batch_size": self.inputs.shape[0], "beam_size": self.beam_size}

    def goes_on(self, state: BeamState) -> jax.Array:
        """Says whether another step can change the result (a bool scalar)."""
        longest_penalty = brevity_penalty(self.alpha, self.length)
        best_live = state.live_logprobs[:, -1:] / longest_penalty
        worst_finished = jnp.min(state.finished_scores, axis=1, keepdims=True)
        worst_finished = jnp.where(state.finished_flags, worst_finished, NEG_INF_VALUE)
        settled = jnp.all(worst_finished > best_live)
        hopeless = (state.cur_index > 0) & jnp.all(best_live < self.min_log_prob / longest_penalty)
        full = state.cur_index + jnp.min(state.initial_index) >= self.length - 1
        out_of_steps = (self.max_decode_step > 0) & (state.cur_index >= self.max_decode_step)
        return ~(settled | hopeless | full | out_of_steps)

    def step(self, state: BeamState) -> BeamState:
        """Extends all live beams by one token and keeps the best ones, live and finished."""
        log_probs, cache = self._next_log_probs(state)
        candidates, origin, candidate_log_probs = self._candidates(state, log_probs)
        ends = candidates[:, :, state.cur_index + 1] == self.eos_id

        alive_log_probs = candidate_log_probs + jnp.where(ends, NEG_INF_VALUE, 0.0)
        live_seqs, live_logprobs, live_origin = gather_topk_beams(
            (candidates, alive_log_probs, origin), alive_log_probs, self._split["batch_size"], self.beam_size
        )
        cache = cache_gather_beams(
            cache, live_origin, self._split["batch_size"], self.beam_size, self.beam_size, offset=self.cache_offset
        )

        lengths = state.initial_index[:, None] + state.cur_index + 1
        scores = candidate_log_probs / brevity_penalty(self.alpha, lengths) + jnp.where(ends, 0.0, NEG_INF_VALUE)
        finished = (
            jnp.concatenate([state.finished_seqs, candidates], axis=1),
            jnp.concatenate([state.finished_scores, scores], axis=1),
            jnp.concatenate([state.finished_flags, ends], axis=1),
        )
        finished_seqs, finished_scores, finished_flags = gather_topk_beams(
            finished, finished[1], self._split["batch_size"], self.beam_size
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

    def _next_log_probs(self, state: BeamState) -> tuple[jax.Array, Cache]:
        """Asks the model: float[batch, beam, vocabulary] log probabilities of the next token, and the next cache."""
        last_tokens = lax.dynamic_slice_in_dim(state.live_seqs, state.cur_index, 1, axis=2)
        logits, cache = self.tokens_to_logits(
            DecodingState(
                cur_index=state.cur_index,
                sequences=flatten_beam_dim(state.live_seqs),
                cur_token=flatten_beam_dim(last_tokens),
                cache=cache_map(functools.partial(flatten_beam_dim, offset=self.cache_offset), state.cache),
            )
        )
        unflatten = functools.partial(unflatten_beam_dim, **self._split, offset=self.cache_offset)
        return jax.nn.log_softmax(unflatten_beam_dim(logits, **self._split)), cache_map(unflatten, cache)

    def _candidates(self, state: BeamState, log_probs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Picks the best continuations; twice as many as beams, because up to half of them may end.

        Returns:
          int32[batch, 2 * beam, length] sequences, the int32[batch, 2 * beam] beam that each continues, and
          float[batch, 2 * beam] summed log probabilities.
        """
        batch_size, _, vocabulary = log_probs.shape
        total = (log_probs + state.live_logprobs[..., None]).reshape(batch_size, -1)
        best, choice = top_k_two_stage(total, 2 * self.beam_size)
        origin, token = choice // vocabulary, choice % vocabulary

        # Inside a prompt there is one continuation, which costs nothing; the other candidates must lose.
        prompt_token = self.inputs[:, state.cur_index + 1, None].astype(jnp.int32)
        is_free = prompt_token == 0
        token = jnp.where(is_free, token, prompt_token)
        best = jnp.where(is_free, best, jnp.where(jnp.arange(best.shape[1]) == 0, 0.0, NEG_INF_VALUE))

        sequences = gather_beams(state.live_seqs, origin, batch_size, self.beam_size, best.shape[1])
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
    """Searches for the continuations of prompts with the best length-corrected log probability.

    Args:
      inputs: int32[batch, length], prompts as decoder inputs: the start token, the prompt, then zeros. All zeros means
        no prompt.
      cache: The model's autoregressive cache for `batch` rows.
      tokens_to_logits: The model: from a `DecodingState` of batch * num_decodes rows to float[rows, vocabulary] logits
        and the next cache.
      eos_id: The token that ends a sequence.
      num_decodes: Number of beams.
      alpha: Exponent of the brevity penalty, see `brevity_penalty`.
      max_decode_len: The most tokens of a sequence; the length of `inputs` if None.
      max_decode_step: The most steps of the search; no limit of its own if it isn't positive.
      min_log_prob: The search stops when no live beam can reach this score.
      decode_rng: Not read, because the search draws no random numbers. Decoders share this argument.
      cache_offset: Where the batch axis of the cache entries is; 1 for scanned layers.
      initial_index: int32[batch], the position of the last prompt token if the cache is prefilled up to there.

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
        # The search goes on from the last token of each prompt as if that were the start token.
        prompt = prompts.right_align(inputs)
        inputs = jnp.zeros_like(prompt).at[:, 0].set(prompt[:, -1])
        live_seqs = jnp.zeros((batch_size, num_decodes, length), prompt.dtype).at[:, :, 0].set(prompt[:, -1:])

    search = _Search(
        inputs=inputs,
        tokens_to_logits=tokens_to_logits,
        eos_id=eos_id,
        beam_size=num_decodes,
        alpha=alpha,
        length=length,
        max_decode_step=max_decode_step,
        min_log_prob=min_log_prob,
        cache_offset=cache_offset,
    )
    start = beam_init(batch_size, num_decodes, length, cache, cache_offset, live_seqs, initial_index)
    end = lax.while_loop(search.goes_on, search.step, start)

    any_finished = jnp.any(end.finished_flags, axis=1)[:, None]
    scores = jnp.where(any_finished, end.finished_scores, end.live_logprobs)
    sequences = jnp.where(any_finished[..., None], end.finished_seqs, end.live_seqs)[:, :, 1:]
    if prompt is not None:
        whole = jnp.concatenate([add_beam_dim(prompt, num_decodes), sequences], axis=-1)
        aligned = prompts.left_align(flatten_beam_dim(whole))
        sequences = unflatten_beam_dim(aligned, batch_size, num_decodes)[:, :, : length - 1]
    return sequences, scores
