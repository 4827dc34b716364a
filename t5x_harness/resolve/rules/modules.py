"""MOD01: a Flax module that is not of the model's kind."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_ENCODER_DECODER = "EncoderDecoderModel"
_DECODER_ONLY = "DecoderOnlyModel"

_MODEL = """\
from t5x import models
MODEL = @models.{model}()
models.{model}:
  module = @network.Transformer()
  {vocabularies}
  optimizer_def = %OPTIMIZER"""
_BAD = _MODEL.format(model=_DECODER_ONLY, vocabularies="vocabulary = %VOCABULARY")
_GOOD = _MODEL.format(
    model=_ENCODER_DECODER, vocabularies="input_vocabulary = %VOCABULARY\n  output_vocabulary = %VOCABULARY"
)


MOD01 = Mistake(
    "MOD01",
    "Flax module that is not of the model's kind",
    why=(
        "`DecoderOnlyModel` calls its module with the decoder's tokens only, `EncoderDecoderModel` with the encoder's "
        "before them. A module of the other kind lacks an argument when T5X makes the train state, on the TPU."
    ),
    bad=training(_BAD, at="  module = @network.Transformer()"),
    good=training(_GOOD),
)


@finds(MOD01)
def module_of_another_kind(run: Resolved) -> Iterator[Found]:
    """Finds an encoder-decoder module under a decoder-only model, or the other way round."""
    from t5x import models

    wanted = {models.DecoderOnlyModel: _DECODER_ONLY, models.EncoderDecoderModel: _ENCODER_DECODER}
    model = next((name for kind, name in wanted.items() if isinstance(run.model, kind)), None)
    module = getattr(run.model, "module", None)
    # Who makes the variables of a model in a way of their own may call the module in a way of their own, too.
    own = getattr(type(run.model), "get_initial_variables", None)
    if model is None or not getattr(own, "__module__", "").startswith("t5x."):
        return
    kind = _kind_of(module)
    if kind is not None and kind != model:
        has = "takes" if kind == _ENCODER_DECODER else "does not take"
        yield Found(
            f"the model is a {type(run.model).__name__}, and its module {type(module).__name__} "
            f"{has} encoder_input_tokens: it is made for {kind}",
            run.config.find("module", type(run.model).__name__),
            f"use {kind}, or a module that takes what {model} gives it",
        )


def _kind_of(module: Any) -> str | None:
    """Returns the model that a module's ``__call__`` is made for, by the names of its arguments.

    None if they tell neither.
    """
    try:
        names = inspect.signature(type(module).__call__).parameters
    except (TypeError, ValueError):
        return None
    if "decoder_input_tokens" not in names:
        return None
    return _ENCODER_DECODER if "encoder_input_tokens" in names else _DECODER_ONLY
