"""The options and settings of the emulated Vertex AI."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from t5x_harness.google.vertex.faults import VertexFault
from t5x_harness.slices.pod import MOST_HOSTS
from t5x_harness.system.memory import available_bytes


@dataclasses.dataclass(frozen=True)
class ExpectedJobs:
    """Jobs that will be sent soon, whose interpreters are started in advance.

    Attributes:
      image: the image of the jobs.
      machine: the ``MachineSpec`` of the jobs, with the field names of protobuf or of JSON.
      jobs: the number of jobs.
    """

    image: str
    machine: Mapping[str, Any]
    jobs: int


@dataclasses.dataclass(frozen=True)
class VertexOptions:
    """The choices of a user, which are passed to the server's process as JSON.

    Attributes:
      state: where resources are kept: ``memory:``, ``fakeredis:`` or ``redis://HOST:PORT/DB``.
      images: the commands that replace container images: globs for image URIs, each with a command line.
      queued_seconds: how long a job is queued.
      pending_seconds: how long a job is pending after that.
      running_seconds: the minimum time that a job is running, so that even clients that rarely poll see that state.
      pod_hosts: the largest number of hosts with which a TPU slice has a process for each host, with its devices. A
        larger slice is one process with all devices. The default is as many as have a GiB of free memory each, at
        least 4 and at most 32.
      warm: whether Google's library is loaded when the server starts, instead of with the first request.
      expected: jobs that will be sent soon; None if that is not known.
      faults: the faults that are armed from the start.
      programs: the import path, ``module:name``, of the object that describes the programs in jobs; see
        ``jobs/programs.py``.
      job_environment: variables for the processes of all jobs.
    """

    state: str = "memory:"
    images: Mapping[str, str] = dataclasses.field(default_factory=dict)
    queued_seconds: float = 0.0
    pending_seconds: float = 0.05
    running_seconds: float = 0.0
    pod_hosts: int = dataclasses.field(default_factory=lambda: min(MOST_HOSTS, max(4, available_bytes() // 2**30)))
    warm: bool = False
    expected: ExpectedJobs | None = None
    faults: tuple[VertexFault, ...] = ()
    programs: str = ""
    job_environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def has_lasting_state(self) -> bool:
        """Whether the state survives the server."""
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
    """The options, and the settings that the server provides.

    Attributes:
      root: the root of the object store, in which ``gs://b/x`` is the file ``buckets/b/x``.
      folder: the folder for files of jobs, which is removed when the server ends.
      environment: the variables that redirect clients to this server, for the processes of jobs.
      options: the user's choices.
    """

    root: Path
    folder: Path
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: VertexOptions = VertexOptions()
