"""SEQ29: packing that the model's feature converter cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Mode

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_CONVERTER = """
import t5x.models


class Converter(seqio.EncDecFeatureConverter):
    PACKING_FEATURE_DTYPES = None


class Model(t5x.models.EncoderDecoderModel):
    FEATURE_CONVERTER_CLS = Converter
"""
_FILES = {"counting.py": examples.TASK + _CONVERTER}
_MODEL = (
    "MODEL = @counting.Model()",
    "counting.Model:",
    "  module = @network.Transformer()",
    "  input_vocabulary = %VOCABULARY",
    "  output_vocabulary = %VOCABULARY",
    "  optimizer_def = %OPTIMIZER",
)


SEQ29 = Mistake(
    "SEQ29",
    "packing that the model's feature converter cannot do",
    why=(
        "T5X's run configs say `pack = True`. Your own converter without `PACKING_FEATURE_DTYPES`, or with "
        "pass-through features, is refused when the job reads its data."
    ),
    bad=training(*_MODEL, files=_FILES, at="include 't5x/configs/runs/pretrain.gin'"),
    good=training(
        *_MODEL, "train/utils.DatasetConfig.pack = False", "train_eval/utils.DatasetConfig.pack = False", files=_FILES
    ),
)


@finds(SEQ29)
def packing(run: Resolved) -> Iterator[Found]:
    """Finds each packed dataset that the converter cannot pack; predictions and inference never pack."""
    converter = getattr(run.model, "FEATURE_CONVERTER_CLS", None)
    if converter is None or run.config.mode is not Mode.TRAIN:
        return
    for role in run.roles:
        if not role.dataset.pack or run.has_evaluator(role):
            continue
        try:
            converter(pack=True, use_custom_packing_ops=role.dataset.use_custom_packing_ops)
        except Exception as error:  # SeqIO's refusal, or that of the user's converter
            yield Found(
                f"{role.name} data is packed, and {converter.__name__} cannot pack: {error}",
                role.key(run.config, "pack"),
                f"set {role.scope}/utils.DatasetConfig.pack = False, or let the converter pack",
            )
