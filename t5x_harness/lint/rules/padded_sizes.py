"""MSH14: sizes that the TPU pads."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Severity

_CONFIGS = (
    "t5x.examples.t5.network.T5Config",
    "t5x.examples.scalable_t5.network.T5Config",
    "t5x.examples.decoder_only.network.TransformerConfig",
)
_SIZES = ("emb_dim", "head_dim", "mlp_dim", "vocab_size")
_ROWS, _COLUMNS = 8, 128
_HEAD = examples.head("pretrain", "from t5x.examples.t5 import network", model="small")


MSH14 = Mistake(
    "MSH14",
    "PaddedSizes",
    "model size that is not a multiple of 8",
    severity=Severity.NOTE,
    why=(
        f"The TPU keeps arrays in tiles of {_ROWS} x {_COLUMNS}. A size that is not a multiple of {_ROWS} is "
        "padded whichever way it lies: memory and time for numbers that nothing uses."
    ),
    bad=Example(_HEAD + "network.T5Config.head_dim = 60\n", at="network.T5Config.head_dim"),
    good=Example(_HEAD + "network.T5Config.head_dim = 64\n"),
)


@finds(MSH14)
def padded_sizes(context: Context) -> Iterator[Found]:
    """Finds each size of the model that fills no whole tile and is not T5X's own."""
    for binding in context.program.final_bindings:
        if binding.target not in _CONFIGS or binding.param not in _SIZES:
            continue
        given = context.program.resolve(binding)
        size = given.value
        if not isinstance(size, int) or size <= 0 or size % _ROWS == 0 or context.in_t5x(given.location):
            continue
        unit = _COLUMNS if binding.param == "vocab_size" else _ROWS
        yield Found(
            f"{given} = {size} is not a multiple of {_ROWS}, and the TPU pads it to {-(-size // _ROWS) * _ROWS} or "
            "more",
            given,
            f"the next multiple of {unit} is {-(-size // unit) * unit}",
        )
