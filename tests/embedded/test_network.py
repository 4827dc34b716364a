"""The T5 network has T5X's parameters, and attends to what it may and to nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from flax.core import unfreeze
from t5x.examples.t5 import network

RECORD = json.loads((Path(__file__).parents[1] / "reference" / "param_trees.json").read_text())["t5"]
CONFIG = network.T5Config(
    vocab_size=384,
    emb_dim=16,
    num_heads=8,
    head_dim=4,
    mlp_dim=32,
    num_encoder_layers=2,
    num_decoder_layers=2,
    mlp_activations=("gelu", "linear"),
    dropout_rate=0.3,
)
INPUTS = jnp.array([[5, 6, 7, 1, 0], [8, 1, 0, 0, 0]])
TARGETS = jnp.array([[9, 3, 4, 1], [3, 1, 0, 0]])
SHIFTED = jnp.pad(TARGETS, ((0, 0), (1, 0)))[:, :-1]


@pytest.fixture(scope="module")
def variables() -> Any:
    return initialise(CONFIG)


def initialise(config: network.T5Config) -> Any:
    init = jax.jit(lambda key: network.Transformer(config).init(key, INPUTS, SHIFTED, TARGETS, enable_dropout=False))
    return init(jax.random.PRNGKey(0))


def forward(variables: Any, *args: Any, config: network.T5Config = CONFIG, **kwargs: Any) -> Any:
    kwargs = {"enable_dropout": False, **kwargs}
    module = network.Transformer(config)
    return jax.jit(lambda params: module.apply({"params": params}, *args, **kwargs))(variables["params"])


def test_parameters_are_the_recorded_ones(variables: Any) -> None:
    got = traverse_util.flatten_dict(unfreeze(variables["params"]), sep="/")
    recorded = {name.removeprefix("params/"): fact for name, fact in RECORD.items() if name.startswith("params/")}
    assert set(got) == set(recorded)
    for name, fact in recorded.items():
        assert list(got[name].shape) == fact["shape"], name
        assert str(got[name].dtype) == fact["dtype"], name
        value = np.asarray(got[name], np.float64)
        np.testing.assert_allclose(value.sum(), fact["sum"], rtol=1e-4, atol=1e-4, err_msg=name)
        np.testing.assert_allclose(np.abs(value).sum(), fact["abs_sum"], rtol=1e-5, err_msg=name)


def test_logical_axes_are_the_recorded_ones(variables: Any) -> None:
    got = traverse_util.flatten_dict(unfreeze(variables["params_axes"]), sep="/")
    recorded = {name: fact for name, fact in RECORD.items() if name.startswith("params_axes/")}
    assert {f"params_axes/{name}": list(axes.names) for name, axes in got.items()} == {
        name: fact["axes"] for name, fact in recorded.items()
    }


def test_logits_from_the_embedding_need_no_layer_of_their_own() -> None:
    config = CONFIG.replace(logits_via_embedding=True, mlp_activations=("relu",))
    params = initialise(config)["params"]
    assert "logits_dense" not in params["decoder"]
    assert set(params["decoder"]["layers_0"]["mlp"]) == {"wi", "wo"}
    assert forward({"params": params}, INPUTS, SHIFTED, TARGETS, config=config).shape == (2, 4, 384)


def test_bfloat16_computes_in_bfloat16_but_keeps_parameters_and_logits_in_float32(variables: Any) -> None:
    config = CONFIG.replace(dtype=jnp.bfloat16)
    assert {x.dtype for x in jax.tree.leaves(initialise(config)["params"])} == {jnp.dtype("float32")}
    encode = network.Transformer.encode
    encoded = forward(variables, INPUTS, config=config, method=encode)
    assert encoded.dtype == jnp.bfloat16
    exact = forward(variables, INPUTS, method=encode)
    np.testing.assert_allclose(encoded.astype(jnp.float32)[0, :4], exact[0, :4], atol=0.15)
    assert forward(variables, INPUTS, SHIFTED, TARGETS, config=config).dtype == jnp.float32


def test_decoding_token_by_token_gives_the_logits_of_one_pass(variables: Any) -> None:
    module = network.Transformer(CONFIG)
    params = variables["params"]
    targets = jnp.array([[9, 3, 4, 1], [3, 8, 8, 1]])
    shifted = jnp.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    expected = forward(variables, INPUTS, shifted, targets)
    encoded = forward(variables, INPUTS, method=module.encode)
    _, state = module.apply(
        {"params": params}, INPUTS, shifted, targets, enable_dropout=False, decode=True, mutable=["cache"]
    )

    @jax.jit
    def step(cache: Any, token: Any) -> Any:
        return module.apply(
            {"params": params, "cache": cache},
            encoded,
            INPUTS,
            token,
            token,
            enable_dropout=False,
            decode=True,
            max_decode_length=4,
            mutable=["cache"],
            method=module.decode,
        )

    for i in range(4):
        logits, state = step(state["cache"], shifted[:, i : i + 1])
        np.testing.assert_allclose(logits[:, 0], expected[:, i], rtol=1e-3, atol=1e-4)


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


def test_padding_changes_nothing_and_targets_see_only_what_is_before(variables: Any) -> None:
    logits = forward(variables, INPUTS, SHIFTED, TARGETS)
    wider = forward(variables, jnp.pad(INPUTS, ((0, 0), (0, 3))), SHIFTED, TARGETS)
    is_token = np.asarray(TARGETS > 0)
    np.testing.assert_allclose(wider[is_token], logits[is_token], rtol=1e-3, atol=1e-4)
    changed = forward(variables, INPUTS, SHIFTED.at[0, 2].set(77), TARGETS)
    np.testing.assert_allclose(changed[0, :2], logits[0, :2], rtol=1e-3, atol=1e-4)
    assert (np.abs(np.asarray(changed - logits))[0, 2:].max(-1) > 1e-3).all()


def test_dropout_is_a_function_of_the_key(variables: Any) -> None:
    @jax.jit
    def drop(key: Any) -> Any:
        params = {"params": variables["params"]}
        return network.Transformer(CONFIG).apply(params, INPUTS, SHIFTED, TARGETS, rngs={"dropout": key})

    first, same, other = (np.asarray(drop(jax.random.PRNGKey(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - other).max() > 1e-2


def test_tokens_of_the_wrong_rank_are_refused(variables: Any) -> None:
    with pytest.raises(AssertionError, match=r"encoder_input_tokens must have shape \[batch, length\], got \(5,\)"):
        forward(variables, INPUTS[0], SHIFTED, TARGETS)


def test_packed_inputs_cannot_be_decoded_token_by_token(variables: Any) -> None:
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
