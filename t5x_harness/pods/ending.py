"""Says why a pod ended: which host was the first, what it did last, and what the others saw."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_harness.pods.stall import Place
from t5x_harness.pods.unity import in_words, on_host
from t5x_harness.spec import Outcome
from t5x_harness.symptoms.recognize import recognize
from t5x_harness.workers.errors import RunDied, RunTimedOut, WorkerError

LOST = "POD12"
STUCK = "POD06"

_CAUSES = {
    LOST: "all hosts end with the first one: start all of them again, and they go on from the last checkpoint",
    STUCK: "look at the line where that host is; every host has to come to the same collectives, in the same order",
}


class PodEnded(RunDied):
    """A host ended, or no host went on, so the pod was ended.

    Attributes:
      code: the code of the mistake.
    """

    def __init__(self, code: str, message: str, log_tail: str = "") -> None:
        super().__init__(message, log_tail=log_tail, fix=_CAUSES[code])
        self.code = code


@dataclasses.dataclass(frozen=True)
class HostEnd:
    """How a call ended on one host.

    Attributes:
      number: the number of the host.
      last: the last event of its progress.
      at: the time when its end was noticed, in seconds.
      reply: what the call returned, if it did.
      error: what it raised, if it did.
      is_killed: whether it was ended because another host had ended.
      stuck_at: where it was when no host went on any more, if that ended it.
    """

    number: int
    last: Mapping[str, Any]
    at: float
    reply: Any = None
    error: WorkerError | None = None
    is_killed: bool = False
    stuck_at: Place | None = None

    @property
    def is_failure(self) -> bool:
        """Whether the call failed there."""
        if self.error is not None or self.stuck_at is not None:
            return True
        reply = self.reply if isinstance(self.reply, Mapping) else {}
        return reply.get("outcome") == Outcome.FAILED or "finding" in reply

    @property
    def message(self) -> str:
        """What the host itself says about its end, in one line."""
        if self.error is not None:
            return str(self.error)
        reply = self.reply if isinstance(self.reply, Mapping) else {}
        findings = [reply["finding"]] if "finding" in reply else reply.get("findings", [])
        return " ".join(findings[0]["message"].split()) if findings else ""

    @property
    def is_effect(self) -> bool:
        """Whether its words are those of a host that has lost another one."""
        return any(symptom.role in ("effect", "echo") for symptom in recognize([self.message]))

    def rank(self) -> tuple[int, float, int]:
        """Orders the ends: the cause comes before what followed from it."""
        if self.is_killed or not self.is_failure:
            kind = 4
        elif self.stuck_at is not None:
            kind = 3 if self.stuck_at.waits else 1
        elif isinstance(self.error, RunTimedOut):
            kind = 2
        else:
            kind = 2 if self.is_effect else 0
        return kind, self.at, self.number


def how_it_ended(method: str, ends: Sequence[HostEnd]) -> Any:
    """Returns the answer to a call that failed on a host, or the exception to raise.

    Args:
      method: the call.
      ends: how it ended on each host.
    """
    cause = min(ends, key=HostEnd.rank)
    others = [end for end in ends if end is not cause]
    if cause.stuck_at is not None:
        return PodEnded(STUCK, _stuck(method, cause, ends))
    if isinstance(cause.error, RunDied):
        return PodEnded(LOST, _lost(cause, others), cause.error.log_tail)
    if cause.error is not None:
        return cause.error
    same = all(end.message == cause.message for end in others)
    return cause.reply if same else _named(cause, len(ends))


def _named(cause: HostEnd, hosts: int) -> Any:
    """Returns the answer of one host, which it alone gave, with its number."""
    reply = dict(cause.reply)
    if "finding" in reply:
        reply["finding"] = {**reply["finding"], "message": on_host(reply["finding"]["message"], cause.number, hosts)}
    else:
        reply["findings"] = [
            {**each, "message": on_host(each["message"], cause.number, hosts)} for each in reply["findings"]
        ]
    return reply


def _lost(cause: HostEnd, others: Sequence[HostEnd]) -> str:
    seen = next((end for end in others if not end.is_killed and end.is_failure), None)
    after = f"; host {seen.number} saw: {seen.message}" if seen else ""
    return f"host {cause.number} of {len(others) + 1}{_did(cause)}: {cause.message}{after}"


def _stuck(method: str, cause: HostEnd, ends: Sequence[HostEnd]) -> str:
    done = [end.number for end in ends if end.stuck_at is None]
    waiting = [end for end in ends if end.stuck_at is not None and end.stuck_at.waits]
    if cause.stuck_at is not None and not cause.stuck_at.waits:
        where = f"host {cause.number} of {len(ends)}{_did(cause)} does not go on, at {cause.stuck_at.line}"
        return f"{where}; {_hosts([end.number for end in waiting])} for it" if waiting else where
    if done:
        at = f" at {cause.stuck_at.line}" if cause.stuck_at and cause.stuck_at.line else ""
        waits = f"{_hosts([end.number for end in waiting])} for others{_did(cause)}{at}"
        return f"{waits}, but {method} has ended on {in_words(done)}"
    lines: dict[str, list[int]] = {}
    for end in waiting:
        lines.setdefault(end.stuck_at.line if end.stuck_at else "", []).append(end.number)
    places = ", ".join(f"{_hosts(numbers)} at {line or 'an unknown place'}" for line, numbers in lines.items())
    return f"all hosts wait for each other{_did(cause)}: {places}"


def _did(end: HostEnd) -> str:
    stage, step, of = (end.last.get(key) for key in ("stage", "step", "of"))
    if stage is None:
        return ""
    return f", in {stage}" + (f" at step {step} of {of}" if step is not None else "")


def _hosts(numbers: Sequence[int]) -> str:
    return f"{in_words(numbers)} wait{'s' if len(numbers) == 1 else ''}"
