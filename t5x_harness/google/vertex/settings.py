"""What the emulated Vertex AI is given before it starts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from t5x_harness.google.vertex.faults import VertexFault


@dataclasses.dataclass(frozen=True)
class ExpectedJobs:
    """Jobs that the one who starts the server is about to send: their interpreters are made ready before.

    Attributes:
      machine: their ``MachineSpec``, by the names of its fields or of its JSON.
    """

    image: str
    machine: Mapping[str, Any]
    jobs: int


@dataclasses.dataclass(frozen=True)
class VertexOptions:
    """What a user may choose. It travels to the server's process as JSON.

    Attributes:
      state: where resources are kept: ``memory:``, ``fakeredis:`` or ``redis://HOST:PORT/DB``.
      images: which command stands for a container image: globs for image URIs, each with a command line.
      queued_seconds: how long a job is queued.
      pending_seconds: how long it is pending after that.
      running_seconds: how long it is running at least, as clients that poll seldom may else never see it.
      pod_hosts: how many hosts a TPU slice may have to be as many processes, each with its host's devices; a larger one
        is one process with all devices.
      warm: whether Google's library is loaded when the server starts, and not at the first request for Vertex AI.
      expected: jobs that are about to come; None if nobody knows.
      faults: that are armed from the start.
      programs: the import path, ``module:name``, of what is known of the programs in jobs; see ``jobs/programs.py``.
      job_environment: variables that the processes of all jobs are given, such as those by which they make stand-ins.
    """

    state: str = "memory:"
    images: Mapping[str, str] = dataclasses.field(default_factory=dict)
    queued_seconds: float = 0.0
    pending_seconds: float = 0.05
    running_seconds: float = 0.0
    pod_hosts: int = 4
    warm: bool = False
    expected: ExpectedJobs | None = None
    faults: tuple[VertexFault, ...] = ()
    programs: str = ""
    job_environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def has_lasting_state(self) -> bool:
        """Whether the state is there when the server has ended."""
        return self.state not in ("memory:", "fakeredis:")

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            json.dumps(vars(self), default=lambda it: dict(it) if isinstance(it, Mapping) else vars(it))
        )
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        expected = ExpectedJobs(**values["expected"]) if values["expected"] is not None else None
        faults = tuple(VertexFault(**fault) for fault in values["faults"])
        return cls(**{**values, "expected": expected, "faults": faults})


@dataclasses.dataclass(frozen=True)
class VertexSettings:
    """The options, and what the server that it runs in has for it.

    Attributes:
      root: of the object store: ``gs://b/x`` is the file ``buckets/b/x`` in it.
      folder: for what jobs need on disk; it is removed when the server ends.
      environment: the variables that lead clients to this server; jobs' processes are given them.
    """

    root: Path
    folder: Path
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: VertexOptions = VertexOptions()
