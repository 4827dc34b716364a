"""Beam search finds the best sentences, goes on from prompts, and stops when it may."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from t5x import decoding
from toy_language import EOS, Language, as_prompts

LENGTH = 4
LANGUAGE = Language(size=5)


def search(inputs: np.ndarray, language: Language = LANGUAGE, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
    cache = kwargs.pop("cache", language.cache(len(inputs)))
    run = jax.jit(lambda x: decoding.beam_search(x, cache, language.tokens_to_logits, EOS, **kwargs))
    sequences, scores = run(inputs)
    return np.asarray(sequences), np.asarray(scores)


def ranked(alpha: float, length: int = LENGTH) -> list[tuple[float, tuple[int, ...]]]:
    """All sentences by score, the best first, as the paper defines it."""
    scored = [(LANGUAGE.log_prob(s) / ((5 + len(s)) / 6) ** alpha, s) for s in LANGUAGE.sentences(length)]
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_many_beams_find_the_best_sentences_in_order(alpha: float) -> None:
    sequences, scores = search(np.zeros((2, LENGTH), np.int32), num_decodes=30, alpha=alpha)
    best = ranked(alpha)[:3]
    expected = [[*sentence, *[0] * (LENGTH - len(sentence))] for _, sentence in best]
    for row in range(2):
        np.testing.assert_allclose(scores[row, ::-1][:3], [score for score, _ in best], rtol=1e-4)
        assert sequences[row, ::-1][:3].tolist() == expected


def test_one_beam_is_greedy() -> None:
    language = Language(size=9, seed=4)
    sequences, scores = search(np.zeros((1, 8), np.int32), language, num_decodes=1, alpha=0.0)
    expected = language.greedy(8)
    assert EOS in expected, "the case must be one that ends"
    assert sequences[0, 0].tolist() == expected
    np.testing.assert_allclose(scores[0, 0], language.log_prob(expected), rtol=1e-4)


def test_prompts_are_kept_and_cost_nothing() -> None:
    prompts = [(3,), (2, 4)]
    sequences, scores = search(as_prompts(*prompts, length=LENGTH + 1), num_decodes=30, alpha=0.0)
    for row, prompt in enumerate(prompts):
        fitting = [s for s in LANGUAGE.sentences(LENGTH + 1) if s[: len(prompt)] == prompt]
        best = max(fitting, key=lambda s: LANGUAGE.log_prob(s, prompt=len(prompt)))
        assert sequences[row, -1].tolist() == [*best, *[0] * (LENGTH + 1 - len(best))]
        np.testing.assert_allclose(scores[row, -1], LANGUAGE.log_prob(best, prompt=len(prompt)), rtol=1e-4)


def test_prefilled_prompts_give_the_same_sentences() -> None:
    inputs = as_prompts((3, 2), (2, 4), length=LENGTH + 1)
    expected, expected_scores = search(inputs, num_decodes=30, alpha=0.6)
    # The cache knows the tokens before the last one of each prompt.
    cache = {"layer": {"before": jnp.array([3, 2]), "cache_index": jnp.array([2, 2])}}
    sequences, scores = search(inputs, cache=cache, initial_index=jnp.array([2, 2]), num_decodes=30, alpha=0.6)
    np.testing.assert_array_equal(sequences[:, -1], expected[:, -1])
    np.testing.assert_allclose(scores[:, -1], expected_scores[:, -1], rtol=1e-5)


def test_the_longest_sentence_can_be_limited() -> None:
    sequences, scores = search(np.zeros((1, 9), np.int32), num_decodes=30, alpha=0.6, max_decode_len=3)
    score, sentence = ranked(0.6, length=3)[0]
    assert sequences.shape == (1, 30, 3)
    assert sequences[0, -1].tolist() == [*sentence, *[0] * (3 - len(sentence))]
    np.testing.assert_allclose(scores[0, -1], score, rtol=1e-4)


@pytest.mark.parametrize(
    ("limit", "steps"), [({}, 6), ({"max_decode_step": 2}, 2), ({"min_log_prob": -1e-6}, 1)], ids=str
)
def test_without_an_end_the_live_beams_are_given(limit: dict[str, float], steps: int) -> None:
    language = Language(size=12, endless=True)
    sequences, scores = search(np.zeros((1, 6), np.int32), language, num_decodes=2, alpha=0.0, **limit)
    assert np.count_nonzero(sequences[0, -1]) == steps
    np.testing.assert_allclose(scores[0, -1], language.log_prob(sequences[0, -1][:steps]), rtol=1e-4)


def test_caches_of_scanned_layers_have_their_batch_axis_second() -> None:
    def tokens_to_logits(state):
        inner = {"layer": {**state.cache["layer"], "before": state.cache["layer"]["before"][0]}}
        logits, new = LANGUAGE.tokens_to_logits(state.replace(cache=inner))
        return logits, {"layer": {**new["layer"], "before": new["layer"]["before"][None]}}

    cache = {"layer": {"before": jnp.zeros((1, 2), jnp.int32), "cache_index": jnp.array(0)}}
    inputs = jnp.zeros((2, LENGTH), jnp.int32)
    sequences, scores = decoding.beam_search(inputs, cache, tokens_to_logits, EOS, cache_offset=1)
    plain_sequences, plain_scores = search(np.zeros((2, LENGTH), np.int32))
    np.testing.assert_array_equal(sequences, plain_sequences)
    np.testing.assert_allclose(scores, plain_scores, rtol=1e-6)


def test_a_search_starts_with_one_live_beam() -> None:
    state = decoding.beam_init(2, 3, 5, LANGUAGE.cache(2))
    np.testing.assert_array_equal(state.live_logprobs, [[0, -1e7, -1e7]] * 2)
    np.testing.assert_array_equal(state.finished_scores, np.full((2, 3), -1e7))
    assert state.live_seqs.shape == state.finished_seqs.shape == (2, 3, 5)
    assert state.cache["layer"]["before"].shape == (2, 3)
    assert state.cache["layer"]["cache_index"].shape == ()


def test_the_most_steps_can_be_read_from_the_loop() -> None:
    """The loop's condition has "less than the length" as one of its parts, as T5X's has."""

    def run(inputs: jax.Array) -> Any:
        return decoding.beam_search(inputs, LANGUAGE.cache(2), LANGUAGE.tokens_to_logits, EOS)

    inputs = np.zeros((2, LENGTH), np.int32)
    (loop,) = (equation for equation in jax.make_jaxpr(run)(inputs).eqns if equation.primitive.name == "while")
    condition = loop.params["cond_jaxpr"].jaxpr
    made_by = {variable: equation for equation in condition.eqns for variable in equation.outvars}
    pending, parts = [condition.outvars[0]], []
    while pending:
        equation = made_by[pending.pop()]
        if equation.primitive.name == "and":
            pending += equation.invars
        else:
            parts.append(equation)
    assert [part.invars[1].val for part in parts if part.primitive.name == "lt"] == [LENGTH]
    assert "stablehlo.scatter" not in jax.jit(run).lower(inputs).as_text()
