"""Inference results as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import seqio
import tensorflow as tf
from t5x._driver.errors import ConfigError

MODES = ("predict", "score", "predict_with_aux")
_PRETOKENIZED = "_pretokenized"

# Predictions (or scores) in order, and the values that came with them, each a list in the same order.
Inferences = tuple[Sequence[Any], Mapping[str, Any]]


def in_order(result: Any) -> Inferences:
    """Sorts what an infer function returns by the index of the example.

    Args:
        result: pairs of index and value, or such pairs and a tree of auxiliary lists in the same (unsorted) order.
    """
    indexed, aux = result if isinstance(result, tuple) else (result, {})
    order = sorted(range(len(indexed)), key=lambda position: indexed[position][0])
    values = [indexed[position][1] for position in order]
    sorted_aux = jax.tree.map(lambda column: [column[position] for position in order], aux, is_leaf=_is_column)
    return values, sorted_aux


def _is_column(node: Any) -> bool:
    return isinstance(node, list | np.ndarray)


def _plain(value: Any) -> Any:
    """Returns what JSON can hold; numpy integers become floats, as T5X writes them."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, np.ndarray | jax.Array):
        return value.tolist()
    if isinstance(value, np.integer | np.floating | jnp.bfloat16.dtype.type):
        return float(value)
    return value


def _kept_inputs(
    example: Mapping[str, Any], include_all_inputs: bool, fields: Sequence[str] | None
) -> Iterator[tuple[str, Any]]:
    for name, value in example.items():
        stem = name.removesuffix(_PRETOKENIZED)
        if include_all_inputs or (
            name in fields or (stem != name and stem in fields) if fields is not None else stem != name
        ):
            yield name, _plain(value)


def write_inferences_to_file(
    path: str,
    inferences: Inferences,
    task_ds: tf.data.Dataset,
    mode: str,
    vocabulary: seqio.Vocabulary | None = None,
    json_encoder_cls: type[json.JSONEncoder] = seqio.TensorAndNumpyEncoder,
    include_all_inputs: bool = False,
    input_fields_to_include: Sequence[str] | None = None,
    output_ids: bool = False,
) -> None:
    """Writes one JSON object a line: the inputs, and the prediction or score.

    Args:
        path: of the file.
        inferences: predicted token ids, or scores, per example, and auxiliary values per example by name.
        task_ds: the examples, in the same order; features named ``*_pretokenized`` are written as inputs.
        mode: 'predict', 'score' or 'predict_with_aux'.
        vocabulary: decodes the token ids.
        json_encoder_cls: encodes what JSON does not know.
        include_all_inputs: write all features as inputs.
        input_fields_to_include: write these features, and their pretokenized texts, as inputs.
        output_ids: write the token ids up to the first padding, too.

    Raises:
        ConfigError: if the mode is unknown, a vocabulary is missing, or both ways to choose inputs are used.
    """
    if mode not in MODES:
        raise ConfigError(f"the mode must be one of {', '.join(MODES)}, not {mode!r}")
    if mode != "score" and vocabulary is None:
        raise ConfigError(f"write_inferences_to_file needs a vocabulary to decode with in mode {mode!r}")
    if include_all_inputs and input_fields_to_include is not None:
        raise ConfigError(
            "write_inferences_to_file.include_all_inputs is True, so input_fields_to_include "
            f"({list(input_fields_to_include)}) must be None"
        )
    values, aux = inferences

    def predicted(ids: Any) -> Iterator[tuple[str, Any]]:
        assert vocabulary is not None
        yield "prediction", _plain(vocabulary.decode_tf(tf.constant(ids)).numpy())
        if output_ids:
            tokens = tf.constant(ids).numpy().tolist()
            yield "prediction_tokens", tokens[: tokens.index(0)] if 0 in tokens else tokens

    with tf.io.gfile.GFile(path, "w") as file:
        for index, example in enumerate(task_ds.as_numpy_iterator()):
            record: dict[str, Any] = {
                "inputs": dict(_kept_inputs(example, include_all_inputs, input_fields_to_include))
            }
            if mode == "score":
                record["score"] = _plain(values[index])
            else:
                record.update(predicted(values[index]))
            if mode == "predict_with_aux" or (mode == "score" and aux):
                mine = jax.tree.map(lambda column, index=index: column[index], aux, is_leaf=_is_column)
                record["aux"] = jax.tree.map(_plain, mine)
            file.write(json.dumps(record, cls=json_encoder_cls) + "\n")
