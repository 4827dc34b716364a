"""The decoder alone has T5X's parameters, learns, scores and predicts as T5X's does, and its cache changes nothing."""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import language_model
import numpy as np
import pytest
from language_model import BATCH, DECODERS, IS_TARGET, TARGETS
from recorded import REFERENCE, parameter_differences
from t5x import models
from t5x.examples.decoder_only import layers, network

RECORD = json.loads((REFERENCE / "decoder_only.json").read_text())


@functools.cache
def trained(name: str) -> tuple[Any, list[float], Any]:
    model = language_model.make_model(prefix=name == "prefix")
    return model, *language_model.train(model)


def test_parameters_and_their_logical_axes_are_the_recorded_ones() -> None:
    config = network.TransformerConfig(
        vocab_size=384,
        emb_dim=16,
        num_heads=8,
        num_layers=2,
        head_dim=4,
        mlp_dim=32,
        mlp_activations=("gelu", "linear"),
    )
    init = jax.jit(lambda key: network.DecoderWrapper(config).init(key, TARGETS, TARGETS, enable_dropout=False))
    assert parameter_differences("decoder_only", init(jax.random.PRNGKey(0))) == []


@pytest.mark.parametrize("name", ["causal", "prefix"])
def test_learns_and_scores_as_recorded(name: str) -> None:
    model, losses, params = trained(name)
    np.testing.assert_allclose(losses, RECORD[name]["losses"], rtol=1e-5)
    np.testing.assert_allclose(language_model.score(model, params), RECORD[name]["scores"], rtol=1e-4)


@pytest.mark.parametrize(("name", "decoder"), [*(("prefix", decoder) for decoder in DECODERS), ("causal", "beam")])
def test_predicts_as_recorded(name: str, decoder: str) -> None:
    model, _, params = trained(name)
    predicted, recorded = language_model.predict(model, params, decoder), RECORD[name]["predictions"][decoder]
    assert predicted["tokens"] == recorded["tokens"]
    np.testing.assert_allclose(predicted["scores"], recorded["scores"], rtol=1e-4)


@pytest.mark.parametrize("name", ["causal", "prefix"])
def test_a_filled_cache_and_one_token_at_a_time_give_the_logits_of_one_pass(name: str) -> None:
    model, _, params = trained(name)
    expected = jax.jit(model._compute_logits)(params, BATCH)
    tokens, is_input = BATCH["decoder_input_tokens"], BATCH["decoder_causal_attention"]
    cache, lengths = jax.jit(model._compute_kv_cache)(params, tokens * is_input, is_input)
    assert lengths.tolist() == [4, 3, 2]

    @jax.jit
    def step(cache: Any, token: Any) -> Any:
        variables = {"params": params, "cache": cache}
        arguments: dict[str, Any] = {"enable_dropout": False, "decode": True, "max_decode_length": 8}
        return model.module.apply(variables, token, token, mutable=["cache"], **arguments)

    for i in range(4):  # each sequence continues where its inputs end
        positions = lengths + i
        logits, variables = step(cache, jnp.take_along_axis(tokens, positions[:, None], axis=1))
        cache = variables["cache"]
        for row, position in enumerate(positions):
            if IS_TARGET[row, position]:
                np.testing.assert_allclose(logits[row, 0], expected[row, position], rtol=1e-3, atol=1e-4)


def test_a_prefix_without_its_length_is_what_the_first_position_sees() -> None:
    attention = layers.MultiHeadDotProductAttention(num_heads=2, head_dim=4)
    inputs = jax.random.normal(jax.random.PRNGKey(0), (2, 3, 8))
    variables = attention.init(jax.random.PRNGKey(1), inputs, inputs, decode=True)
    mask = jnp.array([[1, 1, 0], [1, 1, 1]])[:, None, None]
    _, filled = attention.apply(variables, inputs, inputs, mask, prefill=True, mutable=["cache"])
    assert filled["cache"]["cache_index"].tolist() == [2, 3]
    assert np.asarray(filled["cache"]["cached_key"] != 0).any((1, 2)).tolist() == [[True, True, False], [True] * 3]


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


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_a_cache_is_not_filled_and_read_at_once(self) -> None:
        attention = layers.MultiHeadDotProductAttention(num_heads=2, head_dim=4)
        with pytest.raises(ValueError, match=r"prefill and decode cannot both be true .* fill the cache .* first"):
            attention.init(jax.random.PRNGKey(0), jnp.ones((2, 3, 8)), jnp.ones((2, 3, 8)), decode=True, prefill=True)

    def test_position_biases_are_kept_for_decoding_and_for_one_length_and_direction(self) -> None:
        biases = layers.RelativePositionBiases(num_buckets=4, max_distance=8, num_heads=2, dtype=jnp.float32)
        variables = biases.init(jax.random.PRNGKey(0), 3, 3, False)
        expected, first = biases.apply(variables, 3, 3, False, decode=True, mutable=["cache"])
        kept = {"params": jax.tree.map(jnp.zeros_like, variables["params"]), **first}
        np.testing.assert_array_equal(biases.apply(kept, 3, 3, False, decode=True), expected)
        with pytest.raises(
            ValueError, match=r"expected to have shape \(1, 2, 4, 4\) but .* \(1, 2, 3, 3\)\. Decode with"
        ):
            biases.apply(kept, 4, 4, False, decode=True)
        with pytest.raises(
            ValueError, match=r"not supported when `decode=True`: a token that is decoded sees none after"
        ):
            biases.apply(kept, 3, 3, True, decode=True)
        with pytest.raises(
            ValueError, match=r"cannot be enabled during init.* biases kept would be those of parameters"
        ):
            biases.init(jax.random.PRNGKey(0), 3, 3, False, decode=True)

    def test_prefix_language_models_need_to_know_where_the_inputs_are(self) -> None:
        batch = {name: BATCH[name] for name in ("decoder_input_tokens", "decoder_target_tokens")}
        with pytest.raises(
            ValueError, match=r"'decoder_causal_attention', but the batch has only \['decoder_input_tok"
        ):
            language_model.make_model(prefix=True).eval_fn({}, batch)
        with pytest.raises(ValueError, match=r"task_feature_lengths must name both 'inputs' and 'targets'"):
            language_model.make_model(prefix=False).predict_batch({}, batch)
