"""What T5X does with a mutant, in comparison with the unchanged case."""

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any, Self

Scalars = Mapping[str, Mapping[str, float]]
"""Values by TensorBoard folder and tag, then step, which JSON keeps as text."""

_LOSS = "train/loss"
_ROUNDING = 1e-6
"""How far the losses of programs may be apart that compute the same in another order, relative to the loss."""

_TIMES = ("timing", "seconds", "_per_", "epoch", "queries")


class Ending(enum.StrEnum):
    """How a run of T5X ended.

    ``FINE``: with other values than the unchanged case. ``SAME``: with the same ones. ``EQUAL``: with
    the same ones, as the config says the same in other words. ``IDLE``: it trained, and no
    parameter changed. ``NOTHING``: it succeeded, and wrote nothing. ``CONSTANT``: inputs, targets or predictions do
    not differ between examples, but do in the unchanged case. ``WORSE``: the loss ends above that of a run that
    trains nothing, or below 0: more steps would have to show whether the job is wasted. ``CUT``: it was still at
    work when its time was over. The last two say nothing about the mutant.
    """

    DIES = "dies"
    CRASHES = "crashes"
    NAN = "not finite"
    IDLE = "trains nothing"
    NOTHING = "writes nothing"
    CONSTANT = "constant"
    WORSE = "worse than no training"
    CUT = "cut off"
    SAME = "no effect"
    EQUAL = "the same config"
    FINE = "fine"

    @property
    def is_silent(self) -> bool:
        """Whether such a job does not do what its config says, and nothing shows it."""
        return self in (Ending.SAME, Ending.CONSTANT)

    @property
    def is_failure(self) -> bool:
        """Whether such a job is wasted."""
        return self in (Ending.DIES, Ending.CRASHES, Ending.NAN, Ending.IDLE, Ending.NOTHING)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of a run of T5X.

    Attributes:
      ending: how it ended.
      text: the exception that ended it, with its type; empty for other endings.
      frames: the innermost places where it was raised.
      values: what it wrote: scalars by tag and step, and ``predictions``; and what is ``constant``.
    """

    ending: Ending
    text: str = ""
    frames: tuple[str, ...] = ()
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Reads the values of :meth:`to_json`."""
        return cls(Ending(value["ending"]), value["text"], tuple(value["frames"]), value["values"])


def ending_of(values: Mapping[str, Any], unchanged: Mapping[str, Any] | None, idle: Mapping[str, Any] | None) -> Ending:
    """Judges a run that ended by itself.

    Args:
      values: what it wrote.
      unchanged: what the unchanged case wrote; None for that case itself.
      idle: what the case writes at a learning rate of 0; None for one that does not train.
    """
    losses = values["scalars"].get(_LOSS, {})
    if any(not math.isfinite(loss) for loss in losses.values()):
        return Ending.NAN
    if unchanged is None:
        return Ending.FINE
    if _comparable(values) == _comparable(unchanged):
        return Ending.SAME
    if not any(_comparable(values)):
        return Ending.NOTHING
    resting = idle["scalars"].get(_LOSS, {}) if idle is not None else {}
    if unchanged["scalars"].get(_LOSS) and not losses:
        return Ending.IDLE
    is_comparable = bool(losses) and losses.keys() == resting.keys()
    if is_comparable and all(math.isclose(losses[step], resting[step], rel_tol=_ROUNDING) for step in losses):
        return Ending.IDLE
    if set(values.get("constant", ())) - set(unchanged.get("constant", ())):
        return Ending.CONSTANT
    last = max(losses, key=int, default="")
    if is_comparable and (losses[last] < 0 or losses[last] > resting[last]):
        return Ending.WORSE
    return Ending.FINE


def _comparable(values: Mapping[str, Any]) -> Any:
    """Returns what does not depend on the clock."""
    scalars = {tag: steps for tag, steps in values["scalars"].items() if not any(word in tag for word in _TIMES)}
    return scalars, values["predictions"], values["checkpoints"]
