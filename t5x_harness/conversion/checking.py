"""Compares a converted model in transformers with T5X's own network on the checkpoint's parameters.

Both run in float32 on the CPU, on the same random tokens, some of which are padding.
"""

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from t5x_harness.conversion.architecture import Architecture
from t5x_harness.conversion.flavors import EOS, PAD, Flavor
from t5x_harness.conversion.in_transformers import run_in_transformers
from t5x_harness.conversion.request import Agreement, ConversionError
from t5x_harness.conversion.safetensors_files import Array
from t5x_harness.conversion.stored import StoredParameters
from t5x_harness.runtime.import_hooks import ensure_t5x

_SEED = 0
_BATCH, _INPUT_LENGTH, _OUTPUT_LENGTH = 3, 11, 8
_FIRST_WORD = 3  # after padding, end of sequence and unknown


def require_libraries() -> None:
    """Checks that the libraries in the extra ``convert`` are installed.

    Raises:
      ConversionError: a library is not installed.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise ConversionError(
            f"--check needs {' and '.join(missing)}, not installed here: python -m pip install "
            "'t5x-harness[t5x,convert]', or convert without it"
        )


def compare(source: StoredParameters, sizes: Architecture, flavor: Flavor, folder: Path) -> Agreement:
    """Runs both models and compares their results.

    Args:
      source: the checkpoint, in the element types of the written model.
      sizes: the sizes of its network.
      flavor: its form in transformers.
      folder: the converted model.
    """
    random = np.random.default_rng(_SEED)
    inputs = random.integers(_FIRST_WORD, sizes.vocab_size, (_BATCH, _INPUT_LENGTH))
    for row in range(_BATCH):  # sequences of three lengths, with an end marker like real ones
        inputs[row, _INPUT_LENGTH - 1 - 3 * row] = EOS
        inputs[row, _INPUT_LENGTH - 3 * row :] = PAD
    targets = random.integers(_FIRST_WORD, sizes.vocab_size, (_BATCH, _OUTPUT_LENGTH))
    targets[:, 0] = PAD
    parameters = {name: source.read(name) for name in source.shapes}
    ours, our_rows = _in_t5x(parameters, sizes, flavor, inputs, targets)
    theirs, their_rows = run_in_transformers(folder, flavor.model_type.model_class, inputs, targets, _OUTPUT_LENGTH - 1)
    our_tokens, their_tokens = ([list(_until_end(row[1:])) for row in rows] for rows in (our_rows, their_rows))
    return Agreement(
        logits=ours.size,
        difference=float(np.max(np.abs(ours - theirs))),
        largest=float(np.max(np.abs(ours))),
        same_outputs=our_tokens == their_tokens,
        outputs=sum(map(len, our_tokens)),
    )


def _in_t5x(
    parameters: Mapping[str, Array], sizes: Architecture, flavor: Flavor, inputs: Array, targets: Array
) -> tuple[Array, Array]:
    """Returns the logits for targets, and the tokens of greedy decoding, including the decoder's start token."""
    ensure_t5x()
    import jax
    from flax import traverse_util

    network = importlib.import_module(f"t5x.examples.{sizes.network}.network")
    scan = {"scan_layers": sizes.scan_axis is not None, "param_scan_axis": sizes.scan_axis or 0}
    config = network.T5Config(
        vocab_size=sizes.vocab_size,
        emb_dim=sizes.emb_dim,
        num_heads=sizes.num_heads,
        num_encoder_layers=sizes.encoder_layers,
        num_decoder_layers=sizes.decoder_layers,
        head_dim=sizes.head_dim,
        mlp_dim=sizes.mlp_dim,
        mlp_activations=flavor.activations,
        logits_via_embedding=not sizes.own_logits,
        **(scan if sizes.network == "scalable_t5" else {}),
    )
    arrays = {name: array.astype(np.float32) for name, array in parameters.items()}
    variables = {"params": traverse_util.unflatten_dict(arrays, sep="/")}
    module = network.Transformer(config)

    def apply(variables: Any, decoder_inputs: Any) -> Any:
        return module.apply(variables, inputs, decoder_inputs, np.ones_like(targets), enable_dropout=False)

    forward = jax.jit(apply)
    tokens = np.full_like(targets, PAD)
    for position in range(_OUTPUT_LENGTH - 1):
        tokens[:, position + 1] = np.argmax(forward(variables, tokens)[:, position], axis=-1)
    return np.asarray(forward(variables, targets)), tokens


def _until_end(row: Array) -> list[int]:
    """Returns the tokens of a sequence, including its end marker."""
    tokens = [int(token) for token in row]
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
