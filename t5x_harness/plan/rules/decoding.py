"""INF07: arguments that the decode function refuses."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import Found, Rule, inferring
from t5x_harness.spec import Mode

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey
    from t5x_harness.plan.planned import Planned
    from t5x_harness.resolve.datasets import DataRole

_ROWS, _TOKENS = 2, 8
_LONG = 2**16
_REFUSAL = re.compile(r"topk|topp|decode more steps|max_decode_steps")
_SAMPLING = (
    "from t5x import decoding",
    "from t5x import models",
    "utils.DatasetConfig.split = 'validation'",
    "CHECKPOINT_PATH = 'gs://bucket/t5/checkpoint_1000000'",
    "models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample",
    "decoding.temperature_sample.topp = 0.9",
)


@Rule(
    "INF07",
    "decode parameters that exclude each other or exceed the length",
    why=(
        "T5X refuses topk together with topp, and topk is 1 unless it is bound; it refuses max_decode_steps beyond the "
        "length of the targets. It does so while it traces the first prediction: in training, at the first evaluation."
    ),
    bad=inferring(*_SAMPLING, at="decoding.temperature_sample.topp"),
    good=inferring(*_SAMPLING, "decoding.temperature_sample.topk = 0"),
)
def decode_arguments(plan: Planned) -> Iterator[Found]:
    """Finds the first dataset whose predictions the decode function refuses."""
    config = plan.config
    decodes = config.mode is not Mode.INFER or config.value(config.owner_of("mode")) != "score"
    decode_fn: Any = getattr(plan.run.model, "decode_fn", None)
    for role in plan.run.roles if decodes and decode_fn is not None else ():
        if role.parameter not in ("infer_eval_dataset_cfg", "dataset_cfg"):
            continue
        length = _decoded_length(plan, role)
        if (refusal := _refusal(decode_fn, length)) is not None:
            yield (
                _too_long(plan, role.name, length) if re.search("max_decode_steps|more steps", refusal) else _both(plan)
            )
            return


def _decoded_length(plan: Planned, role: DataRole) -> int | None:
    """Returns the number of positions in a dataset's predictions; None if its longest example decides."""
    lengths = role.dataset.task_feature_lengths
    if lengths is None:
        return None
    converter = plan.run.model.FEATURE_CONVERTER_CLS(pack=False)
    length = converter.get_model_feature_lengths(lengths).get("decoder_input_tokens")
    return length if isinstance(length, int) else None


def _refusal(decode_fn: Any, length: int | None) -> str | None:
    """Returns why T5X's decode function refuses the arguments that the config gives it, or None if it accepts them.

    It is traced in milliseconds, with a model that returns zeros for logits. Other decode functions are not checked:
    they may expect more of the model.

    Args:
      decode_fn: the model's decode function, with the arguments that Gin binds.
      length: the number of positions in a prediction; None if it is not known.
    """
    import jax
    import jax.numpy as jnp

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
        first = str(error).partition("\n")[0]
        return first if _REFUSAL.search(first) else None
    return None


def _both(plan: Planned) -> Found:
    keys = {name: _key(plan, name) for name in ("topk", "topp")}
    values = ", ".join(
        f"{name} is {plan.config.value(key)!r}" if key else f"{name} is 1, as nothing binds it"
        for name, key in keys.items()
    )
    message = f"{values}: T5X samples with one of them at most"
    fix = "bind decoding.temperature_sample.topk = 0 to sample by topp, or leave topp out"
    return Found(message, keys["topp"] or keys["topk"], fix)


def _too_long(plan: Planned, dataset: str, length: int | None) -> Found:
    key = _key(plan, "max_decode_steps")
    value = plan.config.value(key) if key else None
    message = f"max_decode_steps is {value!r}, and predictions for {dataset} have {length} positions"
    fix = f"set max_decode_steps to {length} or less, or lengthen the targets in task_feature_lengths"
    return Found(message, key, fix)


def _key(plan: Planned, parameter: str) -> BindingKey | None:
    return plan.config.owner(plan.config.find(parameter, "temperature_sample"))
