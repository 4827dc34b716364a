"""A test's handle on the Vertex AI of an emulated Google Cloud: its jobs, their logs, faults and requests."""

import dataclasses
import json
import time
import urllib.error
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from t5x_harness.google.faults import UnmetFault
from t5x_harness.google.identity import PRIVATE, PROJECT, UNRECORDED
from t5x_harness.google.server.settings import SessionFolder
from t5x_harness.google.session import EmulatedCloud, ask_server, pages_of
from t5x_harness.google.vertex.faults import (
    AVAILABLE,
    MODULE,
    NEEDED,
    RecordedCall,
    VertexFault,
    VertexFaultKind,
    no_room,
)

ENDED = frozenset(f"JOB_STATE_{state}" for state in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"))
"""The final states of a job."""

_POLL_SECONDS = 0.05
_PAGE = 100


class EmulatorError(Exception):
    """The emulated Vertex AI refused a request, or a job did not reach the expected state."""


@dataclasses.dataclass(frozen=True)
class VertexJob:
    """A custom job at the time when it was read.

    Attributes:
      name: the full name, with the project's number.
      display_name: the name that the user gave it.
      state: the job's state, such as ``JOB_STATE_RUNNING``.
      error: the reason why it failed or was canceled; empty otherwise.
      resource: the whole job as JSON: ``jobSpec``, ``labels``, ``startTime``, …
    """

    name: str
    display_name: str
    state: str
    error: str
    resource: Mapping[str, Any]

    @classmethod
    def from_json(cls, resource: Mapping[str, Any]) -> Self:
        """Reads a CustomJob as the API returns it."""
        error = resource.get("error", {}).get("message", "")
        return cls(resource["name"], resource.get("displayName", ""), resource["state"], error, resource)

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED


class FakeVertex:
    """Jobs, faults and requests of a session's Vertex AI.

    It asks the server directly, without Google's library. Its own requests are not in :attr:`requests`.

    Args:
      location: the location of the jobs.
    """

    def __init__(self, session: EmulatedCloud, location: str = "us-central1") -> None:
        self.project = PROJECT
        self.location = location
        self._session = session

    @property
    def parent(self) -> str:
        """``projects/PROJECT/locations/LOCATION``, the parent of jobs."""
        return f"projects/{self.project}/locations/{self.location}"

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:PORT``, for ``api_endpoint`` of clients that use REST."""
        return self._session.endpoints.url

    @property
    def state_url(self) -> str:
        """The URL at which other processes find the same state; ``memory:`` if none can."""
        return self._session.endpoints.state

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that redirect a process to this session, if it is started with them."""
        return self._session.environment()

    def jobs(self, filter: str = "") -> list[VertexJob]:
        """Returns custom jobs, the newest first.

        Args:
          filter: in the API's syntax, such as ``display_name="train" AND state="JOB_STATE_RUNNING"``.

        Raises:
          EmulatorError: the filter is not valid.
        """
        asked = f"?pageSize={_PAGE}" + (f"&filter={quote(filter)}" if filter else "")
        path = f"/v1/{self.parent}/customJobs{asked}"
        pages = pages_of(lambda token: self._ask("GET", f"{path}&pageToken={quote(token)}"))
        return [VertexJob.from_json(job) for page in pages for job in page.get("customJobs", ())]

    def job(self, name: str) -> VertexJob:
        """Returns a custom job.

        Args:
          name: the full name, the id, or a display name that only one job has.

        Raises:
          EmulatorError: no job or several have this name; the message lists all jobs.
        """
        jobs = self.jobs()
        found = [job for job in jobs if name in (job.name, job.name.rpartition("/")[2])]
        found = found or [job for job in jobs if job.display_name == name]
        if len(found) != 1:
            count = f"{len(found)} jobs are" if found else "no job is"
            there = ", ".join(f"{job.display_name} ({job.name})" for job in jobs) or "none"
            raise EmulatorError(f"{count} called {name!r}; jobs: {there}")
        return found[0]

    def wait(self, name: str, states: Collection[str] = ENDED, *, seconds: float = 60.0) -> VertexJob:
        """Waits until a custom job is in one of these states, and returns it.

        Args:
          states: the states to wait for, such as ``{"JOB_STATE_RUNNING"}``; by default, all final ones.

        Raises:
          EmulatorError: the job does not exist, it has ended in another state, or the time is up.
        """
        deadline = time.monotonic() + seconds
        while (job := self.job(name)).state not in states:
            if job.has_ended or time.monotonic() > deadline:
                wanted = " or ".join(sorted(states))
                when = "has ended" if job.has_ended else f"after {seconds:g} s"
                raise EmulatorError(f"{job.display_name} {when}: {job.state}, not {wanted}. {job.error}".rstrip())
            time.sleep(_POLL_SECONDS)
        return job

    def logs(self, name: str) -> list[str]:
        """Returns the lines in the logs of a job's replicas and of the service, oldest first."""
        job_id = self.job(name).name.rpartition("/")[2]
        request = {"resourceNames": [f"projects/{self.project}"], "filter": f'resource.labels.job_id="{job_id}"'}
        pages = pages_of(lambda token: self._administer("entries", {**request, "pageSize": 1000, "pageToken": token}))
        return [_text(entry) for page in pages for entry in page["entries"]]

    def fail(self, on: str, code: str = "UNAVAILABLE", **which: Any) -> None:
        """Answers requests with an error.

        Args:
          on: a glob for methods: ``JobService.CreateCustomJob``, ``MetadataService.*``.
          code: a code of gRPC: ``UNAVAILABLE``, ``RESOURCE_EXHAUSTED``, ``PERMISSION_DENIED``, …
          **which: ``message``, ``times``, ``after`` and ``optional`` of :class:`VertexFault`.
        """
        self._arm("fail", on, code=code, **which)

    def stall(self, on: str, seconds: float, **which: Any) -> None:
        """Delays requests by a number of seconds; for the other arguments see :meth:`fail`."""
        self._arm("stall", on, seconds=seconds, **which)

    def preempt(self, on: str = "*", **which: Any) -> None:
        """Takes a machine away from a running job.

        Args:
          on: a glob for jobs' display names.
          **which: ``seconds`` (the time that it has run), ``output`` (a regular expression for a line of its output),
            ``replica``, ``times``, ``after`` and ``optional`` of :class:`VertexFault`.
        """
        self._arm("preempt", on, **which)

    def stockout(self, on: str = "*", **which: Any) -> None:
        """Leaves a job without a machine; for the arguments see :meth:`preempt`."""
        self._arm("stockout", on, **which)

    def internal(self, on: str = "*", **which: Any) -> None:
        """Fails a running job with an error of the service itself; for the arguments see :meth:`preempt`."""
        self._arm("internal", on, **which)

    def expire(self, on: str = "*", **which: Any) -> None:
        """Ends a running job in JOB_STATE_EXPIRED; for the arguments see :meth:`preempt`."""
        self._arm("expire", on, **which)

    def oom(self, on: str = "*", **which: Any) -> None:
        """Ends a running job because its machine is out of memory; for the arguments see :meth:`preempt`."""
        self._arm("oom", on, **which)

    def exceed_hbm(
        self,
        on: str = "*",
        *,
        needed: float = NEEDED,
        available: float = AVAILABLE,
        module: str = MODULE,
        **which: Any,
    ) -> None:
        """Fails a running job like a program that exceeds the memory of a TPU, with XLA's error in its log.

        Args:
          on: a glob for jobs' display names.
          needed: the GiB that the program takes, as the compiler computes them ahead of time.
          available: the GiB of one device that programs may use.
          module: XLA's name for the program.
          **which: see :meth:`preempt`.
        """
        self._arm("exceed_hbm", on, message=no_room(needed, available, module), **which)

    @property
    def requests(self) -> list[RecordedCall]:
        """The last 100000 requests of clients, in the order in which they were answered."""
        return [RecordedCall(**call) for call in self._administer("faults")["requests"]]

    def unmet(self) -> list[UnmetFault[VertexFault]]:
        """Returns the faults that too few requests or jobs have hit, except optional ones."""
        record = self._administer("faults")
        methods = tuple(call["method"] for call in record["requests"])
        faults = ((VertexFault(**each["fault"]), each["met"]) for each in record["faults"])
        return [UnmetFault(fault, met, methods) for fault, met in faults if fault.is_unmet(met)]

    def warm(self) -> None:
        """Starts loading Google's library in the server, without waiting for it."""
        self._administer("warm")

    def reset(self) -> None:
        """Ends all jobs, and removes all resources, faults and recorded requests."""
        self._administer("reset")

    def _arm(self, kind: VertexFaultKind, on: str, **which: Any) -> None:
        self._administer("arm", dataclasses.asdict(VertexFault(kind, on, **which)))

    def _administer(self, name: str, value: Any = None) -> Any:
        return self._ask("POST", f"{PRIVATE}/vertex/{name}", json.dumps(value).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        token = SessionFolder(Path(self._session.endpoints.folder)).token.read_text()
        try:
            own = {"Authorization": f"Bearer {token}", UNRECORDED: "1"}
            return ask_server(self._session.endpoints, method, path, body, own)
        except urllib.error.HTTPError as error:
            raise EmulatorError(json.load(error)["error"]["message"]) from None


def _text(entry: Mapping[str, Any]) -> str:
    payload = entry.get("jsonPayload", {})
    return str(entry.get("textPayload", payload.get("message", json.dumps(payload))))
