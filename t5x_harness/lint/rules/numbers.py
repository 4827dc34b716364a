"""GIN09 and GIN36: floats where T5X counts, and numbers outside of their range."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import format_value
from t5x_harness.lint.configured import evaluates, run_function, save_config
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context, finds, where
from t5x_harness.spec import Edit, Mode, Severity

_NETWORK = (
    "vocab_size",
    "emb_dim",
    "num_heads",
    "num_encoder_layers",
    "num_decoder_layers",
    "num_layers",
    "head_dim",
    "mlp_dim",
)
COUNTS: Mapping[str, tuple[str, ...]] = {
    "__main__.train": ("total_steps", "eval_steps", "eval_period", "relative_steps", "stats_period", "gc_period"),
    "__main__.infer": ("checkpoint_period", "shard_id", "num_shards"),
    "t5x.utils.DatasetConfig": ("batch_size",),
    "t5x.utils.SaveCheckpointConfig": ("period",),
    "t5x.partitioning.PjitPartitioner": ("num_partitions",),
    "t5x.trainer.Trainer": ("num_microbatches",),
    **{
        f"t5x.examples.{family}.network.{config}": _NETWORK
        for family in ("t5", "scalable_t5", "decoder_only")
        for config in ("T5Config", "TransformerConfig")
    },
}
LENGTHS: Mapping[str, tuple[str, ...]] = {"t5x.utils.DatasetConfig": ("task_feature_lengths",)}
_MOST = 2**53  # above it a float cannot represent every whole number

_PERIODS: Mapping[str, tuple[str, ...]] = {
    "__main__.train": ("eval_period", "gc_period", "stats_period"),
    "t5x.utils.SaveCheckpointConfig": ("period",),
}

_HEAD = examples.head("pretrain")


def literals(
    context: Context, parameters: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[Binding, Binding | MacroBinding]]:
    """Yields the statements that give these parameters values, each once, with the first binding that reads it."""
    seen: set[tuple[str, str, str]] = set()
    for binding in context.program.final_bindings:
        if binding.param in parameters.get(binding.target, ()):
            given = context.program.resolve(binding)
            if given.key not in seen:
                seen.add(given.key)
                yield binding, given


def read_as(binding: Binding, given: Binding | MacroBinding) -> str:
    """Names the parameter that reads a macro's value; empty if the parameter itself is bound."""
    return f" (read by {binding} in {where(binding.location)})" if given is not binding else ""


GIN09 = Mistake(
    "GIN09",
    "float where a whole number is needed",
    why=(
        "1e6 is a float in Gin. As TRAIN_STEPS it fails with `'float' object cannot be interpreted as an integer`, "
        "after compilation or, if it is longer than an epoch, in the last epoch, when the whole run is spent."
    ),
    bad=training("TRAIN_STEPS = 1e4", at="TRAIN_STEPS = 1e4"),
    good=training("TRAIN_STEPS = 10_000"),
)


@finds(GIN09)
def float_for_count(context: Context) -> Iterator[Found]:
    """Finds each count and feature length that is a float."""
    yield from _lengths(context)
    for binding, given in literals(context, COUNTS):
        if isinstance(given.value, float):
            yield Found(
                f"{given} = {format_value(given.value)} is a float, and a whole number is needed"
                f"{read_as(binding, given)}",
                given,
                _whole(given, given.value),
                severity=Severity.ERROR if _is_fatal(context, binding) else Severity.WARNING,
                edits=_as_whole(context, given),
            )


def _lengths(context: Context) -> Iterator[Found]:
    """Yields a finding for each feature length that is a float."""
    for binding, given in literals(context, LENGTHS):
        for feature, length in given.value.items() if isinstance(given.value, dict) else ():
            if isinstance(length, float):
                yield Found(
                    f"the length of {feature} in {given} is the float {length}, and a whole number is needed"
                    f"{read_as(binding, given)}",
                    given,
                    f"write {feature!r}: {int(length)}" if length.is_integer() else "give a whole number",
                )


def _is_fatal(context: Context, binding: Binding) -> bool:
    """Returns whether T5X counts with a float; of several periods it does so only with the smallest."""
    train, save = run_function(context, Mode.TRAIN), save_config(context)
    if not train or binding.param not in _PERIODS.get(binding.target, ()):
        return True
    periods = [
        train.value("eval_period") if evaluates(train) else None,
        save.value("period"),
        train.value("gc_period"),
    ]
    steps = min((p for p in periods if isinstance(p, (int, float)) and p > 0), default=math.inf)
    value = context.program.resolve(binding).value
    return value < steps if binding.param == "stats_period" else isinstance(steps, float) and value == steps


def _as_whole(context: Context, given: Binding | MacroBinding) -> tuple[Edit, ...]:
    whole = given.value.is_integer() and abs(given.value) < _MOST
    return set_literal(context.program, given.location, given.value, f"{int(given.value):_}") if whole else ()


def _whole(given: Binding | MacroBinding, value: Any) -> str:
    return f"write {given} = {int(value):_}" if float(value).is_integer() else "give a whole number"


@dataclasses.dataclass(frozen=True)
class _Range:
    """The numbers from ``low`` to ``high``, in words, and what happens outside of them."""

    low: float
    high: float
    words: str
    outside: str
    with_low: bool = True

    def holds(self, value: float) -> bool:
        """Returns whether a number lies in the range; NaN lies in none."""
        return (self.low <= value if self.with_low else self.low < value) and value < self.high


_SHARE = _Range(0, 1, "from 0 up to, but not including, 1", "it is a share, and from 1 on nothing is left to train on")
_EPSILON = _Range(0, 1, "next to 0, such as 1e-30", "it is added to squared gradients, and drowns them")
_POSITIVE = _Range(0, math.inf, "above 0", "the updates are nothing, or not finite", with_low=False)
_NOT_NEGATIVE = _Range(0, math.inf, "from 0 up", "the updates are not finite")
_STEPS = _Range(0, math.inf, "from 1 up", "T5X's loop over steps does not end, or makes no step")
_MODELS = ("t5x.models.EncoderDecoderModel", "t5x.models.DecoderOnlyModel")
_CONFIGS = (
    "t5x.examples.t5.network.T5Config",
    "t5x.examples.scalable_t5.network.T5Config",
    "t5x.examples.decoder_only.network.TransformerConfig",
)
_OF_LOSS = {
    "label_smoothing": _SHARE,
    "loss_normalizing_factor": dataclasses.replace(_POSITIVE, outside="the loss is divided by it"),
}
_RANGES: Mapping[str, Mapping[str, _Range]] = {
    "__main__.train": dict.fromkeys(("eval_steps", "eval_period", "stats_period", "gc_period"), _STEPS),
    **{config: {"dropout_rate": _SHARE} for config in _CONFIGS},
    **dict.fromkeys(_MODELS, _OF_LOSS),
    "t5x.adafactor.Adafactor": {"decay_rate": _NOT_NEGATIVE, "clipping_threshold": _POSITIVE, "epsilon1": _EPSILON},
}
_PARAMETERS = {target: tuple(ranges) for target, ranges in _RANGES.items()}


GIN36 = Mistake(
    "GIN36",
    "number outside of its range",
    why=(
        "T5X takes any number. DROPOUT_RATE = 10, meant as 10 %, drops every activation: the job trains to its end, "
        "and no parameter changes. Others end as a loss that is not finite, after the model was built and restored."
    ),
    bad=Example(_HEAD, bindings=("DROPOUT_RATE = 10",), at="DROPOUT_RATE"),
    good=Example(_HEAD, bindings=("DROPOUT_RATE = 0.1",)),
)


@finds(GIN36)
def out_of_range(context: Context) -> Iterator[Found]:
    """Finds each number that is outside of its range."""
    for binding, given in literals(context, _PARAMETERS):
        value, allowed = given.value, _RANGES[binding.target][binding.param]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or allowed.holds(value):
            continue
        yield Found(
            f"{given} = {value} is out of range{read_as(binding, given)}: {allowed.outside}",
            given,
            f"give a number {allowed.words}{_as_share(value) if allowed is _SHARE else ''}",
        )


def _as_share(percent: float) -> str:
    return f": {percent:g} % is {percent / 100:g}" if 1 < percent < 100 else ""
