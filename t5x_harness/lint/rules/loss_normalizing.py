"""GIN25: the loss normalization of public checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.configured import restore_config, run_function
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode, Severity

# Batch size times length of the targets in pretraining with Mesh TensorFlow.
_FACTORS: Mapping[str, tuple[int, int]] = {"T5": (2048, 114), "mT5": (1024, 229), "ByT5": (1024, 189)}
_FAMILIES: Mapping[str, str] = {
    "T5": r"(t5_1_1_|t5\.1\.1\.)(small|base|large|xl|xxl)|t5_(small|base|large|3B|11B)",
    "mT5": r"mt5_(small|base|large|xl|xxl)",
    "ByT5": r"byt5_(small|base|large|xl|xxl)",
}
_STEPS = (999_900, 1_000_000, 1_000_700)  # of the public ones; a run of one's own hardly stops there
_HEAD = (
    examples.head("finetune", model="base")
    + "INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/t5_1_1_base/checkpoint_1000000'\n"
)


def _family(path: str) -> str | None:
    """Returns whose checkpoint it is; None if it is none of the public ones that come from Mesh TensorFlow."""
    match = re.search(r"([^/]+)/(?:checkpoint_|model\.ckpt-)(\d+)/?$", path)
    if match is None or int(match[2]) not in _STEPS:
        return None
    return next((family for family, names in _FAMILIES.items() if re.fullmatch(names, match[1])), None)


GIN25 = Mistake(
    "GIN25",
    "LossNormalizing",
    "loss normalization that is not the checkpoint's",
    severity=Severity.WARNING,
    why=(
        "Mesh TensorFlow divided the loss by batch size times target length. The optimizer's state in a checkpoint of "
        "its time is made for that; without LOSS_NORMALIZING_FACTOR the loss is larger by some hundred thousand times."
    ),
    bad=Example(_HEAD, at="INITIAL_CHECKPOINT_PATH"),
    good=Example(_HEAD + "LOSS_NORMALIZING_FACTOR = 233472\n"),
)


@finds(GIN25)
def loss_normalizing(context: Context) -> Iterator[Found]:
    """Finds a public checkpoint that is fine-tuned without its normalization of the loss, or with another one's."""
    train, restore = run_function(context, Mode.TRAIN), restore_config(context)
    path = restore.parameter("path")
    model = train.built("model", "t5x.models.EncoderDecoderModel")
    if not model or path is None or not isinstance(path.value, str):
        return
    family = _family(path.value)
    if family is None:
        return
    batch, length = _FACTORS[family]
    factor = model.parameter("loss_normalizing_factor")
    others = [b * n for name, (b, n) in _FACTORS.items() if name != family]
    value = None if factor is None else factor.value
    if value is not None and value not in others:
        return
    name = "models.EncoderDecoderModel.loss_normalizing_factor" if factor is None else str(factor.at)
    yield Found(
        f"{name} is {value}, and {family} was pretrained with {batch * length} ({batch} * {length})",
        path.at if factor is None or context.in_t5x(factor.at.location) else factor.at,
        f"bind {name} = {batch * length}",
    )
