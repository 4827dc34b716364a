"""A decoder-only model continues its inputs with a network that knows the last two tokens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio
from flax import linen as nn
from t5x import models
from toy_language import Language

SIZE = 9
LANGUAGE = Language(size=SIZE, seed=2)


class TwoTokenNetwork(nn.Module):
    """The toy language as a network. If positions see each other in both directions, token 5 is certain."""

    @nn.compact
    def __call__(
        self,
        decoder_input_tokens,
        decoder_target_tokens,
        decoder_segment_ids=None,
        decoder_positions=None,
        decoder_causal_attention=None,
        *,
        enable_dropout=True,
        decode=False,
        max_decode_length=None,
        prefill=False,
        prefill_lengths=None,
    ):
        table = self.param("table", lambda key: jnp.asarray(LANGUAGE.logits))
        tokens = decoder_input_tokens.astype(jnp.int32)
        before = jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
        if decode or prefill:
            is_initialized = self.has_variable("cache", "before")
            cached = self.variable("cache", "before", lambda: jnp.zeros(len(tokens), jnp.int32))
            index = self.variable("cache", "cache_index", lambda: jnp.zeros(len(tokens), jnp.int32))
            if prefill:
                cached.value = before[jnp.arange(len(tokens)), prefill_lengths]
                index.value = prefill_lengths
            elif is_initialized:
                before, cached.value = cached.value[:, None], tokens[:, 0]
                index.value += 1
        logits = table[before, tokens]
        if decoder_causal_attention is not None:
            logits = logits.at[..., 5].add(100.0 * decoder_causal_attention)
        return logits


def make_model(**kwargs: Any) -> models.DecoderOnlyModel:
    return models.DecoderOnlyModel(TwoTokenNetwork(), seqio.ByteVocabulary(), None, **kwargs)


PARAMS = {"table": jnp.asarray(LANGUAGE.logits)}
# The inputs are 3 4 and 6. The tokens after them are left out in predictions.
TOKENS = np.array([[3, 4, 7, 1, 0, 0], [6, 2, 8, 8, 1, 0]])
BATCH = {
    "decoder_target_tokens": jnp.asarray(TOKENS),
    "decoder_input_tokens": jnp.asarray(np.pad(TOKENS, ((0, 0), (1, 0)))[:, :-1]),
    "decoder_causal_attention": jnp.array([[1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]]),
    "decoder_loss_weights": jnp.array([[0.0, 0, 1, 1, 0, 0], [0.0, 1, 1, 1, 1, 0]]),
}


def test_initial_variables_need_one_shape() -> None:
    variables = make_model().get_initial_variables(jax.random.PRNGKey(0), {"decoder_input_tokens": (2, 6)})
    np.testing.assert_array_equal(variables["params"]["table"], LANGUAGE.logits)


def test_predictions_go_on_after_the_inputs_and_leave_them_out() -> None:
    predictions = jax.jit(make_model().predict_batch)(PARAMS, BATCH)
    for row, prompt in enumerate([(3, 4), (6,)]):
        expected = LANGUAGE.greedy(6, prompt)[len(prompt) :]
        assert predictions[row].tolist() == expected + [0] * len(prompt)


@pytest.mark.embedded("T5X changes the caller's decoder_params")
def test_all_predictions_can_be_asked_for() -> None:
    arguments = {"topk": 0, "temperature": 1.0}
    sequences, aux = make_model().predict_batch_with_aux(
        PARAMS, BATCH, rng=jax.random.PRNGKey(0), num_decodes=4, return_all_decodes=True, decoder_params=arguments
    )
    assert sequences.shape == (2, 4, 6)
    assert arguments == {"topk": 0, "temperature": 1.0}
    for row, prompt in enumerate([(3, 4), (6,)]):
        expected = [
            LANGUAGE.log_prob([*prompt, *sentence[: 6 - len(prompt)]], prompt=len(prompt))
            for sentence in sequences[row].tolist()
        ]
        np.testing.assert_allclose(aux["scores"][row], expected, rtol=1e-4)


def test_scores_are_log_probabilities_of_the_targets() -> None:
    scores, intermediates = make_model().score_batch(PARAMS, BATCH, return_intermediates=True)
    expected = [LANGUAGE.log_prob(row, prompt=prompt) for row, prompt in zip(TOKENS.tolist(), (2, 1), strict=True)]
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    np.testing.assert_allclose(intermediates["decoder"]["token_scores"][0].sum(-1), expected, rtol=1e-4)
    loss, _ = make_model().eval_fn(PARAMS, BATCH)
    np.testing.assert_allclose(loss, -sum(expected), rtol=1e-4)


def test_prefix_language_models_tell_the_network_where_the_inputs_are() -> None:
    logits = make_model(inputs_bidirectional_attention=True)._compute_logits(PARAMS, BATCH)
    told = np.asarray(logits - make_model()._compute_logits(PARAMS, BATCH))[..., 5]
    np.testing.assert_allclose(told, 100 * BATCH["decoder_causal_attention"], rtol=1e-4)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_prefix_language_models_need_to_know_where_the_inputs_are() -> None:
    batch = {name: BATCH[name] for name in ("decoder_input_tokens", "decoder_target_tokens")}
    with pytest.raises(ValueError, match=r"'decoder_causal_attention', but the batch has only \['decoder_input_tok"):
        make_model(inputs_bidirectional_attention=True).eval_fn(PARAMS, batch)
    with pytest.raises(ValueError, match=r"task_feature_lengths must name both 'inputs' and 'targets'"):
        make_model().predict_batch(PARAMS, batch)


@pytest.mark.parametrize(
    ("sequence", "length", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 0], 3, [4, 5, 6, 7, 0, 0, 0, 0]),
        ([6, 7, 8, 0], 0, [6, 7, 8, 0]),
        ([6, 7, 8, 9], 4, [0, 0, 0, 0]),
    ],
)
def test_prefixes_are_removed(sequence: list[int], length: int, expected: list[int]) -> None:
    assert models.remove_prefix(jnp.array([sequence]), jnp.array([length])).tolist() == [expected]
    several = models.remove_prefix(jnp.array([[sequence, sequence]]), jnp.array([length]))
    assert several.tolist() == [[expected, expected]]
