"""CKP24: optimizers that keep state for a part of the parameters only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Mode

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned

_FROZEN = """from flax import traverse_util
from t5x import adafactor, optimizers


def decoder_alone():
    decoder = traverse_util.ModelParamTraversal(lambda path, _: "decoder" in path)
    rules = adafactor.standard_logical_factor_rules()
    return optimizers.MultiOptimizer([(decoder, adafactor.Adafactor(logical_factor_rules=rules))])
"""
_FREEZING = (
    "import freezing",
    "from t5x import models",
    "models.EncoderDecoderModel.optimizer_def = @freezing.decoder_alone()",
)
_FILES = {**examples.FILES, "freezing.py": _FROZEN}

CKP24 = Mistake(
    "CKP24",
    "optimizer state that orbax cannot restore",
    why=(
        "A MultiOptimizer keeps nothing for parameters that none of its traversals takes. T5X saves such a state with "
        "orbax and cannot read it back: the job trains to its end, unless it is interrupted once. Then each restart "
        "fails with `NOT_FOUND: Error opening … driver`. The older layout can be read back."
    ),
    bad=training(*_FREEZING, files=_FILES, at="models.EncoderDecoderModel"),
    good=training(*_FREEZING, "train_script.train.use_orbax = False", files=_FILES),
)


@finds(CKP24)
def partial_state(plan: Planned) -> Iterator[Found]:
    """Finds a run that saves state for a part of the parameters, or starts from a checkpoint that has more."""
    if plan.config.mode is not Mode.TRAIN or plan.shapes is None or not plan.shapes.empty:
        return
    if plan.fit is not None and plan.fit.unwanted:
        yield Found(
            f"the checkpoint {plan.start.checkpoint} holds state for {_parameters(plan.fit.unwanted)}, for which "
            "the optimizer keeps none: T5X cannot fit the one into the other",
            plan.start.key,
            "drop the checkpoint's: assignment_map = [(r'state/param_states.*', None)] and fallback_to_scratch = True",
        )
    save = plan.save
    if not plan.uses_orbax or save is None or not save.period:
        return
    yield Found(
        f"the optimizer keeps no state for {_parameters(plan.shapes.empty)}: T5X saves that with orbax and cannot "
        "restore it, so the first restart of the job is its end",
        plan.config.owner(plan.config.find("optimizer_def")),
        f"bind {plan.config.owner_of('use_orbax').short} = False, or give every parameter an optimizer, such as "
        "one whose learning rate is 0",
    )


def _parameters(names: Sequence[str]) -> str:
    first, *others = (name.removeprefix("state/param_states/") for name in names)
    return f"{first} and {len(others)} more parameters" if others else first
