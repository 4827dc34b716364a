"""An encoder-decoder model trains on its features, and its predictions are as likely as its scores say."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio
from flax.core import FrozenDict
from t5x import decoding, losses, models
from t5x.examples.t5 import network

VOCABULARY = seqio.ByteVocabulary()
CONFIG = network.T5Config(
    vocab_size=32, emb_dim=8, num_heads=2, head_dim=4, mlp_dim=16, num_encoder_layers=1, num_decoder_layers=1
)
SHAPES = {"encoder_input_tokens": (2, 5), "decoder_input_tokens": (2, 6)}


def make_model(**kwargs: Any) -> models.EncoderDecoderModel:
    return models.EncoderDecoderModel(network.Transformer(CONFIG), VOCABULARY, VOCABULARY, None, **kwargs)


@pytest.fixture(scope="module")
def params() -> Any:
    params = make_model().get_initial_variables(jax.random.PRNGKey(1), SHAPES)["params"]
    return jax.tree.map(lambda x: x * 2, params)  # sharper distributions


def make_batch(targets: np.ndarray) -> dict[str, jax.Array]:
    return {
        "encoder_input_tokens": jnp.array([[5, 6, 7, 8, 1], [9, 1, 0, 0, 0]]),
        "decoder_target_tokens": jnp.asarray(targets),
        "decoder_input_tokens": jnp.pad(jnp.asarray(targets), ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": jnp.asarray(targets > 0, jnp.float32),
    }


BATCH = make_batch(np.array([[4, 3, 2, 5, 1, 0], [7, 1, 0, 0, 0, 0]]))


def run(model: models.EncoderDecoderModel, method: str, *args: Any, **kwargs: Any) -> Any:
    return jax.jit(lambda *arrays: getattr(model, method)(*arrays, **kwargs))(*args)


def test_initial_variables_are_frozen_and_take_every_feature(params: Any) -> None:
    optional = ("encoder_positions", "decoder_positions", "encoder_segment_ids", "decoder_segment_ids")
    shapes = {**SHAPES, **{name: SHAPES[f"{name[:7]}_input_tokens"] for name in optional}}
    types = {"encoder_input_tokens": jnp.int32, "decoder_input_tokens": jnp.int32}
    variables = make_model().get_initial_variables(jax.random.PRNGKey(1), shapes, types)
    assert isinstance(variables, FrozenDict)
    assert set(variables) == {"params", "params_axes"}
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(2 * x, y), variables["params"], params)


def test_the_loss_is_the_weighted_cross_entropy_of_the_logits(params: Any) -> None:
    model = make_model(z_loss=0.1, loss_normalizing_factor="NUM_REAL_TARGET_TOKENS")
    loss, metrics = run(model, "eval_fn", params, BATCH)
    logits = run(model, "_compute_logits", params, BATCH)
    expected, z_loss, weight = losses.compute_weighted_cross_entropy(
        logits, BATCH["decoder_target_tokens"], BATCH["decoder_loss_weights"], z_loss=0.1
    )
    np.testing.assert_allclose(loss, expected / weight, rtol=1e-5)
    np.testing.assert_allclose(metrics["z_loss"].compute(), z_loss / weight, rtol=1e-5)
    # The inputs aren't packed, so rows are counted by their padding.
    assert metrics["effective_batch_size/decoder_target_tokens"].compute() == 2
    assert metrics["non_padding_fraction/encoder_input_tokens"].compute() == 7 / 10


def test_dropout_depends_on_the_key_and_is_off_without_one(params: Any) -> None:
    loss_fn = jax.jit(make_model().loss_fn)
    keys = [None, jax.random.PRNGKey(0), jax.random.PRNGKey(0), jax.random.PRNGKey(1)]
    plain, first, same, other = (float(loss_fn(params, BATCH, key)[0]) for key in keys)
    np.testing.assert_allclose(plain, run(make_model(), "eval_fn", params, BATCH)[0], rtol=1e-6)
    assert first == same
    assert len({plain, first, other}) == 3


def test_scores_are_log_probabilities_of_the_targets(params: Any) -> None:
    model = make_model()
    scores, intermediates = run(model, "score_batch", params, BATCH, return_intermediates=True)
    log_probs = jax.nn.log_softmax(run(model, "_compute_logits", params, BATCH))
    each = np.take_along_axis(np.asarray(log_probs), np.asarray(BATCH["decoder_target_tokens"])[..., None], -1)[..., 0]
    each = each * np.asarray(BATCH["decoder_loss_weights"])
    np.testing.assert_allclose(scores, each.sum(-1), rtol=1e-5)
    np.testing.assert_allclose(run(model, "score_batch", params, BATCH), scores, rtol=1e-6)
    np.testing.assert_allclose(intermediates["decoder"]["token_scores"][0], each, rtol=1e-5)
    np.testing.assert_array_equal(intermediates["decoder"]["target_tokens"][0], BATCH["decoder_target_tokens"])
    np.testing.assert_array_equal(intermediates["decoder"]["loss_weights"][0], BATCH["decoder_loss_weights"])


def test_predictions_are_as_likely_as_beam_search_says(params: Any) -> None:
    # Decoding token by token with a cache must agree with one pass over the whole sequence.
    model = make_model()
    sequences, aux = run(model, "predict_batch_with_aux", params, BATCH, num_decodes=3, return_all_decodes=True)
    assert sequences.shape == (2, 3, 6)
    assert (np.diff(aux["scores"], axis=1) >= 0).all()
    some_ended = (np.asarray(sequences) == 1).any(axis=(1, 2))
    compared = 0
    score_batch = jax.jit(model.score_batch)
    for beam in range(3):
        predicted = np.asarray(sequences[:, beam])
        ended = (predicted == 1).any(-1)
        log_probs = score_batch(params, make_batch(predicted))
        penalty = ((5 + (predicted > 0).sum(-1)) / 6) ** 0.6
        # A row in which too few beams end has empty slots. A row in which none ends has plain log probabilities.
        is_used = ended | ~some_ended
        expected = np.where(ended, log_probs / penalty, log_probs)
        np.testing.assert_allclose(aux["scores"][is_used, beam], expected[is_used], rtol=1e-4)
        compared += is_used.sum()
    assert compared >= 4


def test_the_best_prediction_is_given_unless_all_are_asked_for(params: Any) -> None:
    asked = models.DecoderParams(num_decodes=3, return_all_decodes=True)
    all_sequences, all_aux = run(make_model(default_decoder_params=asked), "predict_batch_with_aux", params, BATCH)
    best, aux = run(make_model(), "predict_batch_with_aux", params, BATCH, num_decodes=3)
    np.testing.assert_array_equal(best, all_sequences[:, -1])
    np.testing.assert_array_equal(aux["scores"], all_aux["scores"][:, -1])
    np.testing.assert_array_equal(run(make_model(), "predict_batch", params, BATCH).shape, (2, 6))


def test_predictions_can_begin_with_the_targets(params: Any) -> None:
    prompts = np.array([[4, 3, 0, 0, 0, 0], [7, 1, 0, 0, 0, 0]])
    sequences, _ = run(make_model(), "predict_batch_with_aux", params, make_batch(prompts), prompt_with_targets=True)
    assert sequences[0, :2].tolist() == [4, 3]
    assert sequences[1, 0] == 7
    assert (sequences[0, 2:] > 0).any()


@pytest.mark.embedded("T5X changes the caller's decoder_params")
def test_decoders_get_the_key_and_arguments_and_leave_them_unchanged(params: Any) -> None:
    model = make_model(decode_fn=decoding.temperature_sample)
    arguments = {"topk": 0, "temperature": 0.7, "eos_id": 31}
    key = jax.random.PRNGKey(5)
    predict = jax.jit(lambda key: model.predict_batch_with_aux(params, BATCH, rng=key, decoder_params=arguments)[0])
    first, other = predict(key), predict(jax.random.PRNGKey(6))
    within = run(model, "predict_batch_with_aux", params, BATCH, decoder_params={**arguments, "decode_rng": key})[0]
    assert set(arguments) == {"topk", "temperature", "eos_id"}
    np.testing.assert_array_equal(first, within)
    assert (np.asarray(first) != np.asarray(other)).any()


def test_two_keys_are_refused(params: Any) -> None:
    with pytest.raises(ValueError, match=r"argument \(4\) and `decoder_params\['decode_rng'\]` \(3\)"):
        make_model().predict_batch_with_aux(params, BATCH, rng=4, decoder_params={"decode_rng": 3})


def test_the_feature_converter_can_be_chosen() -> None:
    assert make_model().FEATURE_CONVERTER_CLS is seqio.EncDecFeatureConverter
    chosen = make_model(feature_converter_cls=seqio.PrePackedEncDecFeatureConverter)
    assert chosen.FEATURE_CONVERTER_CLS is seqio.PrePackedEncDecFeatureConverter


def test_vocabularies_are_those_given() -> None:
    other = seqio.PassThroughVocabulary(9)
    model = models.EncoderDecoderModel(network.Transformer(CONFIG), VOCABULARY, other, None)
    assert models.get_input_vocabulary(model) is VOCABULARY
    assert models.get_output_vocabulary(model) is other
