"""Calls the model's decode function on shapes, to learn whether it takes its arguments."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import jax
import jax.numpy as jnp

from t5x_harness.plan.planned import Planned
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.spec import Mode

_ROWS, _TOKENS = 2, 8
_LONG = 2**16
_REFUSALS = (r"topk|topp", r"decode more steps|max_decode_steps")


def decoded_roles(plan: Planned) -> tuple[DataRole, ...]:
    """Returns the datasets whose targets the run predicts."""
    config = plan.config
    if config.mode is Mode.INFER and config.value(config.owner_of("mode")) == "score":
        return ()
    return tuple(role for role in plan.run.roles if role.parameter in ("infer_eval_dataset_cfg", "dataset_cfg"))


def decoded_length(plan: Planned, role: DataRole) -> int | None:
    """Returns how many positions a dataset's predictions have; None if its longest example decides."""
    lengths = role.dataset.task_feature_lengths
    if lengths is None:
        return None
    converter = plan.run.model.FEATURE_CONVERTER_CLS(pack=False)
    length = converter.get_model_feature_lengths(lengths).get("decoder_input_tokens")
    return length if isinstance(length, int) else None


def refused_arguments(decode_fn: Any, length: int | None) -> str | None:
    """Returns why T5X's decode function refuses the arguments that the config gives it, or None if it accepts them.

    It is traced in milliseconds, with a model that returns zeros for logits.  Other decode functions are not judged:
    they may expect more of the model.

    Args:
      decode_fn: the model's decode function, with the arguments that Gin binds.
      length: how many positions a prediction has; None if it is not known.
    """
    function = inspect.unwrap(decode_fn.func if isinstance(decode_fn, functools.partial) else decode_fn)
    if not str(getattr(function, "__module__", "")).startswith("t5x."):
        return None

    def logits(state: Any) -> tuple[jax.Array, Any]:
        return jnp.zeros((state.cur_token.shape[0], _TOKENS)), state.cache

    def decode(inputs: jax.Array) -> Any:
        return decode_fn(inputs=inputs, cache={}, tokens_to_logits=logits, eos_id=1, num_decodes=1)

    try:
        jax.eval_shape(decode, jax.ShapeDtypeStruct((_ROWS, length or _LONG), jnp.int32))
    except ValueError as error:
        said = str(error).partition("\n")[0]
        return said if any(re.search(pattern, said) for pattern in _REFUSALS) else None
    return None
