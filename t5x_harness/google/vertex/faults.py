"""The faults that an emulated Vertex AI injects, the armed ones among them, and its record of requests."""

import dataclasses
import fnmatch
import re
from collections.abc import Callable
from typing import Any, Literal, Self, cast, get_args

from t5x_harness.google.faults import ArmedFaults, CountedFault
from t5x_harness.google.vertex.wire.errors import StatusCode

VertexFaultKind = Literal["fail", "stall", "preempt", "stockout", "internal", "expire", "oom", "exceed_hbm"]

_KINDS: tuple[VertexFaultKind, ...] = get_args(VertexFaultKind)


def no_room(needed: float, available: float, module: str) -> str:
    """Returns XLA's error for a program that exceeds a TPU's memory.

    Args:
      needed: the GiB that the program takes.
      available: the GiB of one device that programs may use.
      module: XLA's name for the program.
    """
    return (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
        f"temporaries ({needed:.2f}G) exceeds available HBM ({available:.2f}G). HLO module: {module}."
    )


NEEDED, AVAILABLE, MODULE = 32.48, 15.48, "jit_train_step"
"""The default values: those of T5 1.1 XL on one core of a TPU v3."""

# A comma that is followed by a name. A regular expression may contain other commas.
_NEXT_FIELD = re.compile(r",(?=[a-z]+=)")
_NUMBERS = {"seconds": float, "after": int, "times": int}
_FIELDS = ("code", "message", "seconds", "output", "replica", "times", "after")


@dataclasses.dataclass(frozen=True)
class VertexFault(CountedFault):
    """A fault and the methods or jobs to which it applies.

    Attributes:
      kind: ``fail`` answers a method with an error and ``stall`` delays it. ``preempt`` takes a running job's machine
        away, ``stockout`` gives it none, ``internal`` is an unexplained failure of the service, ``expire`` ends the job
        in JOB_STATE_EXPIRED, ``oom`` is a replica whose machine runs out of memory, and ``exceed_hbm`` is a replica
        whose program exits because it exceeds the memory of the TPU.
      on: a glob for methods (``JobService.CreateCustomJob``, ``*.Get*``), or for jobs' display names.
      code: the error's code, such as ``UNAVAILABLE``.
      message: the error's message, or the last line in the log of a program that exceeds the TPU's memory; empty for
        a default.
      seconds: how long a method is delayed, how long a job runs before it hits the fault, or how long a stockout lasts
        before the job fails.
      output: a regular expression for a line of the job's output, after which it hits the fault; empty for none.
      replica: the replica that is preempted or runs out of memory, such as ``workerpool1-0``; the primary one by
        default.
    """

    kind: VertexFaultKind
    on: str = "*"
    code: str = ""
    message: str = ""
    seconds: float = 0.0
    output: str = ""
    replica: str = "workerpool0-0"

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"there is no fault {self.kind!r}; there are {', '.join(_KINDS)}")
        super().__post_init__()
        if self.after < 0 or self.seconds < 0:
            raise ValueError(f"after={self.after}, seconds={self.seconds:g}: neither may be negative")
        if not self.on:
            raise ValueError("on='' matches nothing; use '*' for all")
        try:
            re.compile(self.output)
        except re.error as error:
            raise ValueError(f"output={self.output!r} is not a regular expression: {error}") from None
        if self.kind == "fail" and self.code not in list(StatusCode):
            raise ValueError(f"code={self.code!r} is not one of {', '.join(StatusCode)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a fault from ``KIND[:GLOB][,NAME=VALUE]…``, such as ``preempt:train*,output=step 100``.

        Raises:
          ValueError: the text is not a fault; the message says why.
        """
        head, *fields = _NEXT_FIELD.split(text)
        kind, colon, on = head.partition(":")
        values: dict[str, Any] = {"on": on} if colon else {}
        for field in fields:
            name, _, value = field.partition("=")
            if name not in _FIELDS:
                raise ValueError(f"a fault has no {name!r}; it has {', '.join(_FIELDS)}")
            try:
                values[name] = None if (name, value) == ("times", "all") else _NUMBERS.get(name, str)(value)
            except ValueError:
                raise ValueError(f"{name}={value!r} is not a number") from None
        return cls(cast(VertexFaultKind, kind), **values)

    def __str__(self) -> str:
        parts = [repr(self.on)]
        parts += [
            f"{name}={value!r}" for name in ("code", "seconds", "output", "after") if (value := getattr(self, name))
        ]
        if self.times != 1:
            parts.append(f"times={self.times}")
        return f"vertex.{self.kind}({', '.join(parts)})"


@dataclasses.dataclass(frozen=True)
class RecordedCall:
    """A request that was answered.

    Attributes:
      method: the method's name, such as ``JobService.CreateCustomJob``.
      version: the version of the API, ``v1`` or ``v1beta1``; empty if the method is not Vertex AI's own.
      transport: ``grpc`` or ``rest``.
      about: the first resource, or parent of a resource, that the request names; empty if it names none.
      code: ``OK``, or the error's code.
      fault: the kind of the fault that the request hit; empty for none.
    """

    method: str
    version: str
    transport: str
    about: str
    code: str
    fault: str = ""


class VertexFaults(ArmedFaults[VertexFault]):
    """The armed faults of methods and jobs.

    Attributes:
      armed: called after a fault is armed, because running jobs may hit it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.armed: Callable[[], None] = lambda: None

    def arm(self, fault: VertexFault) -> None:
        super().arm(fault)
        self.armed()

    def take_for(self, name: str, *kinds: VertexFaultKind) -> VertexFault | None:
        """Returns the fault that a request or a job now hits, or None, and counts the hit.

        Args:
          name: the method's name, or the job's display name.
          kinds: the kinds of faults that can happen here.
        """
        return self.take(lambda fault: fault.kind in kinds and fnmatch.fnmatchcase(name, fault.on))
