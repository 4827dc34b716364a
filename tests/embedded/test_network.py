"""The T5 networks have T5X's parameters, attend only to the positions that they may see, and compute their formulas."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio
from recorded import parameter_differences
from t5x import models
from t5x.examples.scalable_t5 import network as scalable_network
from t5x.examples.t5 import layers, network

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


RNG = np.random.RandomState(0)
X = RNG.randn(2, 3, 8).astype(np.float32)
KEY = jax.random.PRNGKey(0)


def init(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module.init({"params": KEY, "dropout": KEY}, *args, **kwargs)


@pytest.mark.parametrize("one_hot", [True, False])
def test_embeddings_are_looked_up_and_attended_to(one_hot: bool) -> None:
    module = layers.Embed(num_embeddings=7, features=8, one_hot=one_hot)
    tokens = np.array([[1, 6, 0]])
    variables = init(module, tokens)
    table = np.asarray(variables["params"]["embedding"])
    np.testing.assert_allclose(module.apply(variables, tokens), table[tokens], rtol=1e-6)
    np.testing.assert_allclose(module.apply(variables, X, method=module.attend), X @ table.T, rtol=1e-4, atol=1e-5)


def bucket(back: int, *, bidirectional: bool, buckets: int, farthest: int) -> int:
    """Returns the bucket of a key that is `back` positions before the query, as defined in the T5 paper."""
    first = 0
    if bidirectional:
        buckets //= 2
        first, back = (buckets, -back) if back < 0 else (0, back)
    elif back < 0:
        back = 0
    singles = buckets // 2
    if back < singles:
        return first + back
    share = math.log(back / singles) / math.log(farthest / singles)
    return first + min(buckets - 1, singles + int(share * (buckets - singles) + 1e-6))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (12, 20)])
def test_relative_positions_fall_into_the_buckets_of_the_paper(
    bidirectional: bool, buckets: int, farthest: int
) -> None:
    module = layers.RelativePositionBiases(buckets, farthest, num_heads=2, dtype=jnp.float32)
    numbers = np.stack([np.arange(buckets), 100 + np.arange(buckets)]).astype(np.float32)
    biases = module.apply({"params": {"rel_embedding": numbers}}, 40, 300, bidirectional)
    expected = [
        [bucket(q - k, bidirectional=bidirectional, buckets=buckets, farthest=farthest) for k in range(300)]
        for q in range(40)
    ]
    np.testing.assert_array_equal(biases, np.stack([expected, np.add(expected, 100)])[None])


def mask_of(rows: list[str]) -> np.ndarray:
    return np.array([[int(cell) for cell in row] for row in rows], np.float32)


def test_decoder_masks_combine_order_prefix_padding_and_segments() -> None:
    targets = jnp.array([[6, 7, 3, 0]])
    prefix = jnp.array([[1, 1, 0, 0]])
    segments = jnp.array([[1, 2, 2, 0]])
    for kwargs, expected in [
        ({}, ["1000", "1100", "1110", "0000"]),
        ({"decoder_causal_attention": prefix}, ["1100", "1100", "1110", "0000"]),
        ({"decoder_segment_ids": segments}, ["1000", "0100", "0110", "0000"]),
        (
            {"decoder_causal_attention": jnp.array([[1, 1, 1, 0]]), "decoder_segment_ids": segments},
            ["1000", "0110", "0110", "0000"],
        ),
    ]:
        mask = layers.make_decoder_mask(targets, jnp.bfloat16, **kwargs)
        assert mask.dtype == jnp.bfloat16
        np.testing.assert_array_equal(mask[0, 0].astype(np.float32), mask_of(expected))


def test_masks_compare_queries_with_keys() -> None:
    mask = layers.make_attention_mask(jnp.array([[1, 2]]), jnp.array([[2, 1, 1]]), jnp.equal)
    np.testing.assert_array_equal(mask, [[[[0, 1, 1], [1, 0, 0]]]])
    assert layers.make_causal_mask(jnp.ones((2, 3)), extra_batch_dims=2).shape == (1, 1, 2, 1, 3, 3)
    both = layers.combine_masks(mask, None, jnp.array([[[[0, 1, 0]]]]))
    np.testing.assert_array_equal(both, [[[[0, 1, 0], [0, 0, 0]]]])


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_what_cannot_be_is_refused(self, variables: Any) -> None:
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

    def test_unknown_activations_are_named(self) -> None:
        with pytest.raises(
            ValueError, match="'rellu' is not an activation: give a function, 'linear', or the name of one"
        ):
            init(layers.MlpBlock(activations=("rellu",)), X)

    def test_tokens_that_are_no_integers_are_refused_unless_cast(self) -> None:
        tokens = np.array([[1.0, 6.0]], np.float32)
        with pytest.raises(ValueError, match=r"must be an integer or unsigned integer\. Token ids here are float32"):
            init(layers.Embed(num_embeddings=7, features=8), tokens)
        cast = layers.Embed(num_embeddings=7, features=8, cast_input_dtype=jnp.int32)
        assert cast.init_with_output(KEY, tokens)[0].shape == (1, 2, 8)

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ((1, 6, 4, 5), "batch sizes differ"),
            ((2, 6, 3, 5), "numbers of heads differ"),
            ((2, 6, 4, 2), "depths of query and key differ"),
            ((2, 6, 5), "arrays of shape"),
        ],
    )
    def test_attention_names_the_shapes_that_differ(self, change: tuple[int, ...], what: str) -> None:
        with pytest.raises(AssertionError, match=what):
            layers.dot_product_attention(np.zeros((2, 3, 4, 5)), np.zeros(change), np.zeros(change))

    def test_a_cache_takes_one_token_at_a_time(self) -> None:
        module = layers.MultiHeadDotProductAttention(num_heads=2, head_dim=4)
        variables = init(module, X, X, decode=True)
        assert variables["cache"]["cached_key"].shape == (2, 2, 4, 3)
        with pytest.raises(
            ValueError, match=r"expected query shape \(2, 1, 2, 4\) instead got \(2, 3, 2, 4\)\. .* sequences of 3\."
        ):
            module.apply(variables, X, X, decode=True, mutable=["cache"])

    def test_biases_add_up_and_nothing_stays_nothing(self) -> None:
        np.testing.assert_array_equal(layers.combine_biases(jnp.ones((1, 2)), None, jnp.array([[1, 2]])), [[2, 3]])
        assert layers.combine_biases(None) is None
        assert layers.combine_masks(None, None) is None
        with pytest.raises(AssertionError, match=r"same rank, got shapes \[\(2,\), \(1, 2\)\]"):
            layers.combine_masks(jnp.ones(2), jnp.ones((1, 2)))
