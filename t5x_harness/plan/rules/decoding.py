"""INF07: arguments that the decode function refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.examples import inferring
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.plan.rule import finds

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey
    from t5x_harness.plan.planned import Planned

_SAMPLING = (
    "from t5x import decoding",
    "from t5x import models",
    "utils.DatasetConfig.split = 'validation'",
    "CHECKPOINT_PATH = 'gs://bucket/t5/checkpoint_1000000'",
    "models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample",
    "decoding.temperature_sample.topp = 0.9",
)


INF07 = Mistake(
    "INF07",
    "decode parameters that exclude each other or exceed the length",
    why=(
        "T5X refuses topk together with topp, and topk is 1 unless it is bound; it refuses max_decode_steps beyond the "
        "length of the targets. It does so while it traces the first prediction: in training, at the first evaluation."
    ),
    bad=inferring(*_SAMPLING, at="decoding.temperature_sample.topp"),
    good=inferring(*_SAMPLING, "decoding.temperature_sample.topk = 0"),
)


@finds(INF07)
def decode_arguments(plan: Planned) -> Iterator[Found]:
    """Finds the first dataset whose predictions the decode function refuses."""
    from t5x_harness.plan.decoding import decoded_length, decoded_roles, refused_arguments

    decode_fn: Any = getattr(plan.run.model, "decode_fn", None)
    for role in decoded_roles(plan) if decode_fn is not None else ():
        length = decoded_length(plan, role)
        said = refused_arguments(decode_fn, length)
        if said is None:
            continue
        if "max_decode_steps" in said or "more steps" in said:
            yield _too_long(plan, role.name, length)
        else:
            yield _both(plan)
        return


def _both(plan: Planned) -> Found:
    keys = {name: _key(plan, name) for name in ("topk", "topp")}
    values = ", ".join(
        f"{name} is {plan.config.value(key)!r}" if key else f"{name} is 1, as nothing binds it"
        for name, key in keys.items()
    )
    return Found(
        f"{values}: T5X samples with one of them at most",
        keys["topp"] or keys["topk"],
        "bind decoding.temperature_sample.topk = 0 to sample by topp, or leave topp out",
    )


def _too_long(plan: Planned, dataset: str, length: int | None) -> Found:
    key = _key(plan, "max_decode_steps")
    value = plan.config.value(key) if key else None
    return Found(
        f"max_decode_steps is {value!r}, and predictions for {dataset} have {length} positions",
        key,
        f"set max_decode_steps to {length} or less, or lengthen the targets in task_feature_lengths",
    )


def _key(plan: Planned, parameter: str) -> BindingKey | None:
    return plan.config.owner(plan.config.find(parameter, "temperature_sample"))
