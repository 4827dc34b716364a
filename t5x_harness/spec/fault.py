"""A fault to order: the moment at which the process of a training, evaluation or inference is ended, and how."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Self

from t5x_harness.system.decode import JsonValue
from t5x_harness.system.misspelling import did_you_mean

_GRACE = 30.0
"""The seconds that a preempted Spot machine has between SIGTERM and its end."""


class Moment(enum.StrEnum):
    """What a training, or an evaluation or inference, is doing when the fault comes.

    ``STEP``: it is about to take the batch of a step. ``SAVE``: it is writing the files of a checkpoint. ``COMMIT``:
    the files are complete, and the checkpoint is about to get its name. ``EVAL``: it is about to evaluate. ``INFER``:
    the model is about to predict a chunk of an inference. ``RESTORE``: it has been restarted, and reads a checkpoint.
    ``COMPILE``: it has been restarted, and is about to compile its step.
    """

    STEP = "step"
    SAVE = "save"
    COMMIT = "commit"
    EVAL = "eval"
    INFER = "infer"
    RESTORE = "restore"
    COMPILE = "compile"

    @property
    def follows_restart(self) -> bool:
        """Whether it belongs to a training that has been restarted once already."""
        return self in (Moment.RESTORE, Moment.COMPILE)


class Ending(enum.StrEnum):
    """How the process is ended.

    ``KILL``: by SIGKILL. ``TERM``: by SIGTERM, and after the grace by SIGKILL. ``STOP``: it is stopped by SIGSTOP, as
    on a machine that hangs. ``GIL``: a thread holds Python's lock, so that its other threads hang. The last two are
    ended after the grace.
    """

    KILL = "kill"
    TERM = "term"
    STOP = "stop"
    GIL = "gil"


@dataclasses.dataclass(frozen=True)
class Fault(JsonValue):
    """A fault.

    Attributes:
      at_step: the first step, or chunk of an inference, at which the moment counts; None for the first one that has
        something to go on from.
      during: the moment.
      how: how the process is ended.
      grace: the seconds until a process that was not ended at once is killed.
      host: the number of the host of a pod that it comes to; None for all of them at once.
      on: where the training is restarted, a slice such as ``v4-8``, or a number of partitions such as ``4``; None for
        where it was.
    """

    at_step: int | None = None
    during: Moment = Moment.STEP
    how: Ending = Ending.KILL
    grace: float = _GRACE
    host: int | None = None
    on: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Checks the arguments of a marker or of ``t5x_run``.

        Raises:
          ValueError: there is no such argument or value; the message names it.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := next((name for name in given if name not in names), None):
            raise ValueError(f"there is no {unknown!r}: there are {', '.join(names)}{did_you_mean(unknown, names)}")
        step, grace, host = given.get("at_step"), given.get("grace", _GRACE), given.get("host")
        for name, number in (("at_step", step), ("host", host)):
            if number is not None and (type(number) is not int or number < 0):
                raise ValueError(f"{name} must be a whole number from 0 up, not {number!r}")
        if type(grace) not in (int, float) or not 0 <= grace < 3600:
            raise ValueError(f"grace must be a number of seconds below 3600, not {grace!r}")
        on = given.get("on")
        if on is not None and (not isinstance(on, str) or not on):
            raise ValueError(f"on must be the name of a slice, or a number of partitions as text, not {on!r}")
        during = _choice("during", given.get("during", Moment.STEP), Moment)
        how = _choice("how", given.get("how", Ending.KILL), Ending)
        return cls(step, Moment(during), Ending(how), float(grace), host, on)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads ``during=save,how=term,at_step=3,grace=5``; a word alone is ``during``.

        Raises:
          ValueError: there is no such name or value; the message names it.
        """
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            name, value = (name.strip(), value.strip()) if equals else ("during", name)
            if name in given:
                raise ValueError(f"{name} is given twice")
            given[name] = _number(value) if name in ("at_step", "grace", "host") else value
        return cls.of(given)

    def __str__(self) -> str:
        step = "" if self.at_step is None else f",at_step={self.at_step}"
        grace = "" if self.grace == _GRACE else f",grace={self.grace:g}"
        host = "" if self.host is None else f",host={self.host}"
        on = "" if self.on is None else f",on={self.on}"
        return f"during={self.during},how={self.how}{step}{grace}{host}{on}"


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _choice(name: str, value: Any, choices: type[enum.StrEnum]) -> str:
    if value not in [*choices]:
        near = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}{near}")
    return str(value)
