"""Faults that an emulated Vertex AI injects, those that are armed, and its record of requests."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Callable
from typing import Any, Literal, Self, cast, get_args

from t5x_harness.google.armed_faults import ArmedFaults, CountedFault, counted
from t5x_harness.google.vertex.wire.errors import StatusCode

VertexFaultKind = Literal["fail", "stall", "preempt", "stockout", "internal", "expire", "oom", "exceed_hbm"]

_KINDS: tuple[VertexFaultKind, ...] = get_args(VertexFaultKind)


def no_room(needed: float, available: float, module: str) -> str:
    """Returns what XLA says of a program that exceeds a TPU's memory.

    Args:
      needed: GiB.
      available: GiB of one device that programs may use.
      module: the program, as XLA names it.
    """
    return (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
        f"temporaries ({needed:.2f}G) exceeds available HBM ({available:.2f}G). HLO module: {module}."
    )


NEEDED, AVAILABLE, MODULE = 32.48, 15.48, "jit_train_step"
"""What is said where nobody gives numbers: T5 1.1 XL on a core of a TPU v3."""

# Behind a comma: a regular expression may have commas, too.
_NEXT_FIELD = re.compile(r",(?=[a-z]+=)")
_NUMBERS = {"seconds": float, "after": int, "times": int}
_FIELDS = ("code", "message", "seconds", "output", "replica", "times", "after")


@dataclasses.dataclass(frozen=True)
class VertexFault(CountedFault):
    """What goes wrong, and for which methods or jobs.

    Attributes:
      kind: ``fail`` answers a method with an error and ``stall`` makes it wait; ``preempt`` takes a running job's
        machine away, ``stockout`` has none for it, ``internal`` is a failure of the service that it says nothing of,
        ``expire`` is the end in JOB_STATE_EXPIRED, ``oom`` a replica whose machine has too little memory, and
        ``exceed_hbm`` one whose program XLA finds no room for on the TPU, so that it exits.
      on: a glob for methods (``JobService.CreateCustomJob``, ``*.Get*``), or for jobs' display names.
      code: of the error, such as ``UNAVAILABLE``.
      message: of the error, or what the log of a program ends with that exceeds the TPU's memory; empty for one that
        says what this is.
      seconds: how long a method waits, a job runs before it meets the fault, or the stockout lasts before the job is
        informed of it.
      output: a regular expression for a line of the job's output, after which it meets the fault; empty for none.
      replica: that is preempted, or lacks memory, such as ``workerpool1-0``; the primary one by default.
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
            raise ValueError("on='' is for nothing; '*' is for all")
        try:
            re.compile(self.output)
        except re.error as error:
            raise ValueError(f"output={self.output!r} is not a regular expression: {error}") from None
        if self.kind == "fail" and self.code not in list(StatusCode):
            raise ValueError(f"code={self.code!r} is none of {', '.join(StatusCode)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``KIND[:GLOB][,NAME=VALUE]…``, such as ``preempt:train*,output=step 100``.

        Raises:
          ValueError: it is not one; the message says why.
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
    """One request that was answered.

    Attributes:
      method: such as ``JobService.CreateCustomJob``.
      version: of the API that was called: ``v1`` or ``v1beta1``; empty where the method is none of Vertex AI's.
      transport: ``grpc`` or ``rest``.
      about: the name of the resource, or of its parent, that the request names first; empty for none.
      code: ``OK``, or the error's.
      fault: the kind of the fault that it met; empty for none.
    """

    method: str
    version: str
    transport: str
    about: str
    code: str
    fault: str = ""


@dataclasses.dataclass(frozen=True)
class UnmetVertexFault:
    """A fault that fewer requests or jobs met than it is for."""

    fault: VertexFault
    met: int
    methods: tuple[str, ...]

    def __str__(self) -> str:
        missing = f"met {self.met} of {self.fault.times} times" if self.met else "not met"
        return f"{self.fault} was {missing} (requests there were: {counted(self.methods)})"


class VertexFaults(ArmedFaults[VertexFault]):
    """The faults that methods and jobs may meet."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[], None]] = []

    def on_arm(self, function: Callable[[], None]) -> None:
        """Has a function called whenever a fault was armed: for what is under way, and may meet it."""
        self._listeners.append(function)

    def arm(self, fault: VertexFault) -> None:
        super().arm(fault)
        for function in self._listeners:
            function()

    def take_for(self, name: str, *kinds: VertexFaultKind) -> VertexFault | None:
        """Returns the fault that a request or a job meets now, which is counted; None for none.

        Args:
          name: of the method, or the job's display name.
          kinds: that it can meet here.
        """
        return self.take(lambda fault: fault.kind in kinds and fnmatch.fnmatchcase(name, fault.on))
