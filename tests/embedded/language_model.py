"""A tiny language model of ``examples/decoder_only``: what it learns, scores and predicts.

With T5X on the path, this program prints the record: ``python language_model.py > ../reference/decoder_only.json``.
"""

import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import seqio
from t5x import adafactor, decoding, models, train_state
from t5x.examples.decoder_only import network

# The first token starts a sequence, ones end it, and zeros are padding. Inputs are the first 4, 3 and 2 targets.
TARGETS = jnp.array([[7, 9, 4, 5, 6, 3, 8, 1], [5, 3, 8, 9, 4, 1, 0, 0], [4, 6, 3, 3, 9, 7, 5, 1]])
IS_TARGET = jnp.array([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1]])
BATCH = {
    "decoder_target_tokens": TARGETS,
    "decoder_input_tokens": jnp.pad(TARGETS, ((0, 0), (1, 0)))[:, :-1],
    "decoder_loss_weights": IS_TARGET,
    # As in SeqIO: the inputs, and the position that predicts the first target.
    "decoder_causal_attention": jnp.pad(1 - IS_TARGET, ((0, 0), (1, 0)), constant_values=1)[:, :-1] * (TARGETS > 0),
}
STEPS = 4
DECODERS: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
    "greedy": (decoding.temperature_sample, {"temperature": 0.0}, 1),
    "temperature": (decoding.temperature_sample, {"temperature": 0.7, "topk": 0}, 2),
    "top-k": (decoding.temperature_sample, {"temperature": 1.0, "topk": 3}, 2),
    "top-p": (decoding.temperature_sample, {"temperature": 1.5, "topk": 0, "topp": 0.8}, 2),
    "beam": (decoding.beam_search, {"alpha": 0.8}, 3),
}


def make_model(*, prefix: bool) -> models.DecoderOnlyModel:
    """Builds the model: a causal one, or one that reads its inputs in both directions."""
    config = network.TransformerConfig(
        vocab_size=16,
        emb_dim=16,
        num_heads=2,
        num_layers=2,
        head_dim=8,
        mlp_dim=32,
        mlp_activations=("gelu", "linear"),
        dropout_rate=0.1,
        logits_via_embedding=not prefix,
    )
    return models.DecoderOnlyModel(
        network.DecoderWrapper(config),
        seqio.PassThroughVocabulary(16, eos_id=1),
        adafactor.Adafactor(learning_rate=0.1, logical_factor_rules=adafactor.standard_logical_factor_rules()),
        inputs_bidirectional_attention=prefix,
        label_smoothing=0.1,
        z_loss=1e-4,
    )


def train(model: models.DecoderOnlyModel) -> tuple[list[float], Any]:
    """Trains with dropout for some steps on one batch; returns the losses and the parameters."""
    shapes = {"decoder_input_tokens": TARGETS.shape}
    variables = jax.jit(lambda key: model.get_initial_variables(key, shapes))(jax.random.PRNGKey(0))
    state = train_state.FlaxOptimTrainState.create(model.optimizer_def, variables)

    @jax.jit
    def step(state: Any, key: Any) -> Any:
        (loss, _), gradient = jax.value_and_grad(model.loss_fn, has_aux=True)(state.params, BATCH, key)
        return loss, state.apply_gradient(gradient, learning_rate=0.1)

    losses = []
    for number in range(STEPS):
        loss, state = step(state, jax.random.PRNGKey(number))
        losses.append(float(loss))
    return losses, state.params


def predict(model: models.DecoderOnlyModel, params: Any, decoder: str) -> dict[str, Any]:
    """Continues the inputs of the batch; returns all decodes of a decoder."""
    decode, settings, number = DECODERS[decoder]
    # The decoder is an argument of the model, and the only difference.
    model._decode_fn = functools.partial(decode, **settings)  # type: ignore[attr-defined]
    predict = functools.partial(model.predict_batch_with_aux, num_decodes=number, return_all_decodes=True)
    tokens, aux = jax.jit(predict)(params, BATCH, jax.random.PRNGKey(7))
    return {"tokens": tokens.tolist(), "scores": aux["scores"].tolist()}


def score(model: models.DecoderOnlyModel, params: Any) -> list[float]:
    """Scores the targets of the batch."""
    scores: list[float] = jax.jit(model.score_batch)(params, BATCH).tolist()
    return scores


def observe(model: models.DecoderOnlyModel) -> dict[str, Any]:
    """Returns the results of a model: losses by step, scores of the targets, and predictions by decoder."""
    losses, params = train(model)
    predictions = {decoder: predict(model, params, decoder) for decoder in DECODERS}
    return {"losses": losses, "scores": score(model, params), "predictions": predictions}


if __name__ == "__main__":
    print(json.dumps({name: observe(make_model(prefix=name == "prefix")) for name in ("causal", "prefix")}))
