"""GIN36: numbers outside of the range in which they mean anything."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.rule import Context, finds
from t5x_harness.lint.rules.number_types import literals, read_as


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
    **{model: _OF_LOSS for model in _MODELS},
    "t5x.adafactor.Adafactor": {"decay_rate": _NOT_NEGATIVE, "clipping_threshold": _POSITIVE, "epsilon1": _EPSILON},
}
_PARAMETERS = {target: tuple(ranges) for target, ranges in _RANGES.items()}
_HEAD = examples.head("pretrain")


GIN36 = Mistake(
    "GIN36",
    "OutOfRange",
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
