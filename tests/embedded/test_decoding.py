"""Sampling takes the requested tokens, and beam search finds the best sentences; both stop where they should."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import FrozenDict, freeze
from t5x import binary_search, decoding
from toy_language import EOS, Language, as_prompts

LANGUAGE = Language(size=6)
NO_PROMPT = np.zeros((2, 6), np.int32)


def decoded(decode: Any, inputs: np.ndarray, language: Language, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sequences of a decoder, and their log probabilities or scores."""
    cache = kwargs.pop("cache", language.cache(len(inputs)))
    run = jax.jit(lambda x: decode(x, cache, language.tokens_to_logits, EOS, **kwargs))
    sequences, scores = run(inputs)
    return np.asarray(sequences), np.asarray(scores)


def sample(inputs: np.ndarray, language: Language = LANGUAGE, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
    return decoded(decoding.temperature_sample, inputs, language, **kwargs)


@pytest.mark.parametrize("greedy", [{}, {"topk": 0, "temperature": 0.0}], ids=["topk=1", "temperature=0"])
def test_greedy_decoding_takes_the_likeliest_tokens(greedy: dict[str, Any]) -> None:
    prompts = [(), (3, 2)]
    sequences, log_probs = sample(as_prompts(*prompts, length=6), **greedy)
    assert sequences[:, 0].tolist() == [LANGUAGE.greedy(6, prompt) for prompt in prompts]
    np.testing.assert_array_equal(log_probs, np.zeros((2, 1)))  # the only possible choice


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("rescale", [True, False])
def test_log_probs_are_of_the_sampled_tokens_alone(temperature: float, rescale: bool) -> None:
    prompts = [(), (3, EOS, 2)]
    inputs = as_prompts(*prompts, length=7)
    sequences, log_probs = sample(inputs, num_decodes=4, topk=0, temperature=temperature, rescale_log_probs=rescale)
    assert (np.diff(log_probs, axis=1) >= 0).all(), "the likeliest comes last"
    for row, prompt in enumerate(prompts):
        assert (sequences[row, :, : len(prompt)] == prompt).all()
        expected = [
            LANGUAGE.log_prob(s, prompt=len(prompt), temperature=temperature if rescale else 1.0)
            for s in sequences[row]
        ]
        np.testing.assert_allclose(log_probs[row], expected, rtol=1e-4, atol=1e-5)


def test_nothing_follows_the_end_token() -> None:
    sequences, _ = sample(NO_PROMPT, num_decodes=20, topk=0)
    ends = (sequences == EOS).argmax(-1)
    assert (ends > 0).any(), "the case must have sentences that end"
    for sentence in sequences.reshape(-1, 6):
        after = sentence[list(sentence).index(EOS) + 1 :] if EOS in sentence else ()
        assert not np.any(after)


def test_prompts_can_have_temperatures_of_their_own() -> None:
    sequences, log_probs = sample(NO_PROMPT, num_decodes=1, topk=0, temperature=jnp.array([0.0, 50.0]))
    assert sequences[0, 0].tolist() == LANGUAGE.greedy(6)
    assert log_probs[0, 0] == 0.0
    expected = LANGUAGE.log_prob(sequences[1, 0], temperature=50.0)
    np.testing.assert_allclose(log_probs[1, 0], expected, rtol=1e-4)


def test_sampling_is_a_function_of_the_key() -> None:
    default, _ = sample(NO_PROMPT, topk=0, num_decodes=8)
    again, _ = sample(NO_PROMPT, topk=0, num_decodes=8, decode_rng=jax.random.PRNGKey(0))
    other, _ = sample(NO_PROMPT, topk=0, num_decodes=8, decode_rng=jax.random.PRNGKey(1))
    np.testing.assert_array_equal(default, again)
    assert (default != other).any()


@pytest.mark.parametrize(("limits", "steps"), [({}, 3), ({"max_decode_steps_hard_limit": 2}, 2)], ids=str)
def test_steps_after_each_prompt_can_be_limited(limits: dict[str, int], steps: int) -> None:
    language = Language(size=6, endless=True)
    prompts = [(), (3, 2)]
    sequences, _ = sample(as_prompts(*prompts, length=8), language, max_decode_steps=3, **limits)
    for row, prompt in enumerate(prompts):
        whole = language.greedy(8, prompt)
        stop = len(prompt) + steps
        assert sequences[row, 0].tolist() == [*whole[:stop], *[0] * (8 - stop)]


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="max_decode_steps=7 is more than the 6 positions"):
        decoding.temperature_sample(NO_PROMPT, {}, LANGUAGE.tokens_to_logits, EOS, max_decode_steps=7)
    with pytest.raises(ValueError, match=r"topk=1 and topp=0\.9 cannot both be on: set one of them to 0"):
        decoding.temperature_sample(NO_PROMPT, {}, LANGUAGE.tokens_to_logits, EOS, topp=0.9)
    with pytest.raises(AssertionError, match="2 rows cannot be split into 3 sequences of 2 beams"):
        decoding.unflatten_beam_dim(jnp.asarray(X), 3, 2)
    with pytest.raises(AssertionError, match="offset is 2"):
        decoding.cache_gather_beams({}, jnp.zeros((1, 1), jnp.int32), 1, 1, 1, offset=2)


def test_truncation_can_be_decided_while_running() -> None:
    def run(topk: int, topp: float) -> Any:
        return decoding.temperature_sample(
            jnp.zeros((1, 6), jnp.int32), LANGUAGE.cache(1), LANGUAGE.tokens_to_logits, EOS, topk=topk, topp=topp
        )

    traced = jax.jit(run)
    np.testing.assert_array_equal(traced(1, 0.99)[0], [[LANGUAGE.greedy(6)]])
    np.testing.assert_array_equal(traced(0, 0.7)[0], sample(NO_PROMPT[:1], topk=0, topp=0.7)[0])


def test_prefilled_prompts_give_the_same_sentences() -> None:
    inputs = as_prompts((3,), (2, 4), length=6)
    expected, _ = sample(inputs, num_decodes=2)
    cache = {"layer": {"before": jnp.array([0, 2]), "cache_index": jnp.array([1, 2])}}
    prefilled, _ = sample(inputs, cache=cache, initial_index=jnp.array([1, 2]), num_decodes=2)
    np.testing.assert_array_equal(prefilled, expected)


def test_frozen_caches_stay_frozen() -> None:
    expected, _ = sample(NO_PROMPT)
    sequences, _ = sample(NO_PROMPT, cache=freeze(LANGUAGE.cache(2)))
    np.testing.assert_array_equal(sequences, expected)


def test_callbacks_change_logits_and_state() -> None:
    seen_steps = 6

    def forbid(logits, state):
        assert logits.shape == (2, LANGUAGE.size)
        return logits.at[:, jnp.array([EOS, 3])].set(-1e7)

    def count(state):
        return state.replace(log_prob=state.log_prob + 1.0)

    sequences, log_probs = sample(NO_PROMPT, logit_callback_fn=forbid, state_callback_fn=count)
    assert not np.isin(sequences, [EOS, 3]).any()
    np.testing.assert_array_equal(log_probs, np.full((2, 1), seen_steps + 1.0))  # before each step and after the last


def test_tokens_are_written_without_a_scatter() -> None:
    """A scatter would exchange the tokens of all devices' rows, which T5X's program does not do."""

    def run(inputs: jax.Array) -> Any:
        return decoding.temperature_sample(inputs, LANGUAGE.cache(2), LANGUAGE.tokens_to_logits, EOS, topk=3)

    assert "stablehlo.scatter" not in jax.jit(run).lower(NO_PROMPT).as_text()


LIMITS = np.iinfo(np.int32)
RNG = np.random.default_rng(0)


def test_the_largest_int_that_is_not_beyond_is_found_in_each_element() -> None:
    last = np.array([[LIMITS.min, -7, -1], [0, 12345, LIMITS.max]], np.int32)
    found = binary_search.int32_bsearch(last.shape, lambda x: x > last)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, last)
    assert binary_search.int32_bsearch((), lambda x: jnp.bool_(True)) == LIMITS.min


def test_the_largest_float_that_is_not_beyond_is_found_in_each_element() -> None:
    largest = np.finfo(np.float32).max
    last = np.array([-largest, -1.5, -1e-30, 1e-3, 7.25, largest], np.float32)
    found = binary_search.float32_bsearch(last.shape, lambda x: x > last)
    np.testing.assert_array_equal(found, last)
    assert binary_search.float32_bsearch((), lambda x: jnp.bool_(True)) == -np.inf
    assert binary_search.float32_bsearch((), lambda x: jnp.bool_(False)) == largest


@pytest.mark.parametrize(("shape", "k"), [((40,), 7), ((3, 40), 1), ((2, 3, 40), 39)])
def test_the_k_largest_stay(shape: tuple[int, ...], k: int) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    least = np.sort(x, axis=-1)[..., -k, None]
    np.testing.assert_array_equal(binary_search.topk_mask(x, k, -1e7), np.where(x >= least, x, np.float32(-1e7)))


def test_values_as_large_as_the_last_stay_too() -> None:
    masked = binary_search.topk_mask(jnp.array([3.0, 1.0, 3.0, 2.0, 2.0]), 3, jnp.float32(-9))
    np.testing.assert_array_equal(masked, [3, -9, 3, 2, 2])


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.39, [True, False, False, False]), (0.55, [True, True, False, False]), (0.95, [True, True, True, True])],
)
@pytest.mark.parametrize("rows", [None, 2])
def test_the_likeliest_that_reach_p_stay(p: float, kept: Any, rows: int | None) -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    if rows:
        logits, kept = np.stack([logits, logits[::-1]]), np.stack([kept, kept[::-1]])
    masked = binary_search.topp_mask(logits, p, -1e7)
    np.testing.assert_array_equal(masked, np.where(kept, logits, np.float32(-1e7)))


LENGTH = 4
SMALL = Language(size=5)


def search(inputs: np.ndarray, language: Language = SMALL, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
    return decoded(decoding.beam_search, inputs, language, **kwargs)


def ranked(alpha: float, length: int = LENGTH) -> list[tuple[float, tuple[int, ...]]]:
    """Returns all sentences by score as the paper defines it, the best first."""
    scored = [(SMALL.log_prob(s) / ((5 + len(s)) / 6) ** alpha, s) for s in SMALL.sentences(length)]
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
        fitting = [s for s in SMALL.sentences(LENGTH + 1) if s[: len(prompt)] == prompt]
        best = max(fitting, key=lambda s: SMALL.log_prob(s, prompt=len(prompt)))
        assert sequences[row, -1].tolist() == [*best, *[0] * (LENGTH + 1 - len(best))]
        np.testing.assert_allclose(scores[row, -1], SMALL.log_prob(best, prompt=len(prompt)), rtol=1e-4)


def test_prefilled_prompts_give_a_search_the_same_sentences() -> None:
    inputs = as_prompts((3, 2), (2, 4), length=LENGTH + 1)
    expected, expected_scores = search(inputs, num_decodes=30, alpha=0.6)
    # The cache holds the tokens before the last one of each prompt.
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


def test_the_most_steps_can_be_read_from_the_loop() -> None:
    """The loop's condition contains "less than the length", as T5X's does."""

    def run(inputs: jax.Array) -> Any:
        return decoding.beam_search(inputs, SMALL.cache(2), SMALL.tokens_to_logits, EOS)

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


X = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize("one_hot", [True, False])
def test_gathering_beams_indexes_every_row_by_its_own_choice(one_hot: bool) -> None:
    picked = decoding.gather_beams({"a": jnp.asarray(X)}, jnp.array([[2, 2], [0, 1]]), 2, 3, 2, one_hot)["a"]
    np.testing.assert_array_equal(picked, np.stack([X[0, [2, 2]], X[1, [0, 1]]]))
    assert picked.dtype == jnp.asarray(X).dtype


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("offset", [0, 1])
def test_gathering_caches_leaves_shared_entries_alone(one_hot: bool, offset: int) -> None:
    value = np.moveaxis(np.stack([X, X + 100]), 0, 0 if offset else -1).astype(np.float32)
    cache = {"layer": {"cached_key": jnp.asarray(value), "cache_index": jnp.array(7), "cached_bias": jnp.ones(9)}}
    picked = decoding.cache_gather_beams(cache, jnp.array([[1], [0]]), 2, 3, 1, one_hot, offset)["layer"]
    rows = np.moveaxis(value, 0, -1) if offset else value
    expected = np.stack([rows[0, [1]], rows[1, [0]]])
    np.testing.assert_array_equal(picked["cached_key"], np.moveaxis(expected, -1, 0) if offset else expected)
    assert picked["cache_index"] == 7
    assert picked["cached_bias"].shape == (9,)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("with_index", [True, False])
def test_caches_are_mapped_in_their_own_type(frozen: bool, with_index: bool) -> None:
    cache = {"a": {"cached_key": jnp.ones(2), "cache_index": jnp.array([1, 1]), "position_embedder_index": jnp.ones(1)}}
    mapped = decoding.cache_map(lambda x: x + 1, freeze(cache) if frozen else cache, apply_to_index=with_index)
    assert isinstance(mapped, FrozenDict) == frozen
    assert mapped["a"]["cached_key"].tolist() == [2, 2]
    assert mapped["a"]["cache_index"].tolist() == ([2, 2] if with_index else [1, 1])
    assert mapped["a"]["position_embedder_index"].tolist() == [1]


# One pass; two passes; two passes with a row of padding; too many rows for two passes.
@pytest.mark.parametrize("shape", [(2, 40), (2, 4096), (8, 3333), (9, 4096)])
def test_two_stage_top_k_finds_the_largest_and_of_equals_the_first(shape: tuple[int, int]) -> None:
    x = np.random.RandomState(0).randint(0, 30, shape).astype(np.float32)
    values, positions = decoding.top_k_two_stage(jnp.asarray(x), 3)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))
