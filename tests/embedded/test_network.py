"""The T5 networks have T5X's parameters, and attend only to the positions that they may see."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio
from recorded import parameter_differences
from t5x import models
from t5x.examples.scalable_t5 import network as scalable_network
from t5x.examples.t5 import network

SIZES: dict[str, Any] = {
    "vocab_size": 384,
    "emb_dim": 16,
    "num_heads": 8,
    "head_dim": 4,
    "mlp_dim": 32,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "mlp_activations": ("gelu", "linear"),
    "dropout_rate": 0.3,
}
CONFIG = network.T5Config(**SIZES)
SCANNED = scalable_network.T5Config(**SIZES)
INPUTS = jnp.array([[5, 6, 7, 1, 0], [8, 1, 0, 0, 0]])
TARGETS = jnp.array([[9, 3, 4, 1], [3, 1, 0, 0]])
SHIFTED = jnp.pad(TARGETS, ((0, 0), (1, 0)))[:, :-1]


@functools.cache
def initialise(config: Any = CONFIG) -> Any:
    def init(key: Any) -> Any:
        return transformer(config).init(key, INPUTS, SHIFTED, TARGETS, enable_dropout=False)

    return jax.jit(init)(jax.random.PRNGKey(0))


@pytest.fixture
def variables() -> Any:
    return initialise()


def transformer(config: Any) -> Any:
    return (network if isinstance(config, network.T5Config) else scalable_network).Transformer(config)


def forward(variables: Any, *args: Any, config: Any = CONFIG, **kwargs: Any) -> Any:
    kwargs = {"enable_dropout": False, **kwargs}
    module = transformer(config)
    return jax.jit(lambda params: module.apply({"params": params}, *args, **kwargs))(variables["params"])


@pytest.mark.parametrize(("name", "config"), [("t5", CONFIG), ("scalable_t5", SCANNED)])
def test_parameters_and_their_logical_axes_are_the_recorded_ones(name: str, config: Any) -> None:
    assert parameter_differences(name, initialise(config)) == []


def test_bfloat16_computes_in_bfloat16_but_keeps_parameters_and_logits_in_float32(variables: Any) -> None:
    config = CONFIG.replace(dtype=jnp.bfloat16)
    assert {x.dtype for x in jax.tree.leaves(initialise(config)["params"])} == {jnp.dtype("float32")}
    encode = network.Transformer.encode
    encoded = forward(variables, INPUTS, config=config, method=encode)
    assert encoded.dtype == jnp.bfloat16
    exact = forward(variables, INPUTS, method=encode)
    np.testing.assert_allclose(encoded.astype(jnp.float32)[0, :4], exact[0, :4], atol=0.15)
    assert forward(variables, INPUTS, SHIFTED, TARGETS, config=config).dtype == jnp.float32


def test_packed_sequences_do_not_see_each_other(variables: Any) -> None:
    alone = forward(variables, INPUTS, SHIFTED, TARGETS)
    packed = forward(
        variables,
        jnp.array([[5, 6, 7, 1, 8, 1]]),
        jnp.array([[0, 9, 3, 4, 0, 3]]),
        jnp.array([[9, 3, 4, 1, 3, 1]]),
        encoder_segment_ids=jnp.array([[1, 1, 1, 1, 2, 2]]),
        decoder_segment_ids=jnp.array([[1, 1, 1, 1, 2, 2]]),
    )
    np.testing.assert_allclose(packed[0, :4], alone[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(packed[0, 4:], alone[1, :2], rtol=1e-3, atol=1e-4)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_what_cannot_be_is_refused(variables: Any) -> None:
    with pytest.raises(AssertionError, match=r"encoder_input_tokens must have shape \[batch, length\], got \(5,\)"):
        forward(variables, INPUTS[0], SHIFTED, TARGETS)
    with pytest.raises(ValueError, match=r"must not be packed when decoding token by token.*set pack = False"):
        forward(
            variables,
            jnp.zeros((2, 5, 16)),
            INPUTS,
            SHIFTED[:, :1],
            SHIFTED[:, :1],
            encoder_segment_ids=jnp.ones_like(INPUTS),
            decode=True,
            method=network.Transformer.decode,
        )


def by_layer(params: Any) -> Any:
    """Gives each scanned layer its own part of the parameters, under the names of layers that are not scanned."""
    stacks = {
        stack: {
            **{name: value for name, value in params[stack].items() if name != stack},
            **{f"layers_{i}": jax.tree.map(lambda x, i=i: x[:, i], params[stack][stack]) for i in range(2)},
        }
        for stack in ("encoder", "decoder")
    }
    return {**params, **stacks}


@pytest.mark.journey
@pytest.mark.parametrize("policy", ["minimal", "full"])
def test_scanned_layers_computed_again_or_not_are_those_one_by_one(policy: str) -> None:
    """This holds forward and backward: the values that are kept for the gradients change no result."""
    params = initialise(SCANNED)["params"]
    one_by_one = SCANNED.replace(scan_layers=False)

    def gradients(config: Any, params: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = transformer(config).apply({"params": params}, INPUTS, SHIFTED, TARGETS, enable_dropout=False)
            return -jax.nn.log_softmax(logits)[:, :, 3].sum()

        return jax.jit(jax.value_and_grad(loss))(params)

    loss, gradient = gradients(SCANNED.replace(remat_policy=policy), params)
    expected_loss, expected = gradients(one_by_one, by_layer(params))
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4), by_layer(gradient), expected)


def test_beam_search_finds_the_same_with_the_cache_of_scanned_layers() -> None:
    """Such a cache has an axis of layers before the axis of beams."""
    params = initialise(SCANNED)["params"]
    batch = {"encoder_input_tokens": INPUTS, "decoder_input_tokens": SHIFTED}

    def predict(config: Any, params: Any) -> Any:
        vocabulary = seqio.ByteVocabulary()
        model = models.EncoderDecoderModel(transformer(config), vocabulary, vocabulary, optimizer_def=None)
        search = functools.partial(model.predict_batch_with_aux, num_decodes=3, return_all_decodes=True)
        return jax.jit(search)(params, batch)

    tokens, aux = predict(SCANNED, params)
    expected, expected_aux = predict(SCANNED.replace(scan_layers=False), by_layer(params))
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_allclose(aux["scores"], expected_aux["scores"], rtol=1e-5)
    assert len({tuple(beam) for beam in np.asarray(tokens[0])}) == 3
