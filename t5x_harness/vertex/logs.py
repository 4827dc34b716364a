"""Reads a job's log from Cloud Logging as it grows, and finds the devices that it names."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from t5x_harness.symptoms.table import symptom_codes
from t5x_harness.vertex.errors import VertexError

_URL = "https://logging.googleapis.com/v2/entries:list"
_PAGE = 1000
_SECONDS = 30.0
_MOST_PAGES = 100
_OK, _FORBIDDEN = 200, 403
_PASSING = frozenset({429, 500, 502, 503, 504})


@dataclasses.dataclass(frozen=True)
class LogLine:
    """One entry of a log.

    Attributes:
      replica: the replica that wrote it, such as ``workerpool0-0``; ``service`` for Vertex AI itself.
      text: the text of the entry.
      severity: the severity: ``INFO``, ``ERROR``, …
      timestamp: the time at which it was written, in UTC and in the format of RFC 3339.
    """

    replica: str
    text: str
    severity: str
    timestamp: str

    def __str__(self) -> str:
        return f"{self.replica}: {self.text}"


class LogReader:
    """Reads a job's log, continuing from the last entry that it read.

    Entries arrive late and out of order, so the most recent period is requested again each time.

    Args:
      project: the id or number of the job's project.
      job_id: the last part of the job's resource name.
      late: how much older than the newest entry a new one may be.
    """

    def __init__(self, project: str, job_id: str, late: timedelta = timedelta(minutes=1)) -> None:
        self._late = late
        self._project = project
        self._filter = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"'
        self._newest: datetime | None = None
        self._seen: dict[str, datetime] = {}
        self._session: Any = None

    def new_lines(self) -> list[LogLine]:
        """Returns the entries that have not been read yet, ordered by time.

        Raises:
          VertexError: the log cannot be read. This does not affect the job.
        """
        since = self._newest - self._late if self._newest else None
        wanted = f'{self._filter} AND timestamp>="{since.isoformat()}"' if since else self._filter
        entries = [entry for entry in self._entries(wanted) if entry["insertId"] not in self._seen]
        self._seen |= {entry["insertId"]: _time(entry) for entry in entries}
        if self._seen:
            self._newest = max(self._seen.values())
            self._seen = {name: time for name, time in self._seen.items() if time >= self._newest - self._late}
        return [_line(entry) for entry in entries]

    def _entries(self, wanted: str) -> Iterator[Mapping[str, Any]]:
        token = ""
        for _ in range(_MOST_PAGES):
            answer = self._ask(wanted, token)
            yield from answer.get("entries", ())
            token = answer.get("nextPageToken", "")
            if not token:
                return

    def _ask(self, wanted: str, token: str) -> Mapping[str, Any]:
        import google.auth
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import AuthorizedSession

        question = {
            "resourceNames": [f"projects/{self._project}"],
            "filter": wanted,
            "orderBy": "timestamp asc",
            "pageSize": _PAGE,
            **({"pageToken": token} if token else {}),
        }
        try:
            if self._session is None:
                credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
                self._session = AuthorizedSession(credentials)
            answer = self._session.post(_URL, json=question, timeout=_SECONDS)
        except (TransportError, OSError) as error:
            raise VertexError(f"the log cannot be read: {error}", passing=True) from None
        except GoogleAuthError as error:
            raise VertexError(f"the log cannot be read: {error}") from None
        if answer.status_code != _OK:
            fix = f"; this needs roles/logging.viewer in {self._project}" if answer.status_code == _FORBIDDEN else ""
            raise VertexError(
                f"the log cannot be read: {answer.status_code}, {_reason(answer)}{fix}",
                passing=answer.status_code in _PASSING,
            )
        entries: Mapping[str, Any] = answer.json()
        return entries


def _time(entry: Mapping[str, Any]) -> datetime:
    """Returns the time at which an entry was written, rounded down to microseconds."""
    return datetime.fromisoformat(entry["timestamp"])


def _line(entry: Mapping[str, Any]) -> LogLine:
    payload = entry.get("jsonPayload", {})
    text = str(entry.get("textPayload") or payload.get("message") or payload or "")
    replica = entry.get("resource", {}).get("labels", {}).get("task_name", "")
    return LogLine(replica, text.rstrip("\n"), entry.get("severity", "DEFAULT"), entry["timestamp"])


def _reason(answer: Any) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.reason)


_CPU, _TPU = "cpu", "TPU"
_THE_CPU = "the CPU"
_NOT_SAID = "not named in its log"

# T5X logs its mesh in one line if it is made of TPUs, of several slices, or, with model_parallel_submesh, of CPUs, and
# its shape in a later line. With num_partitions alone, T5X does not log a mesh of CPUs.
_MESH = re.compile(r"global_mesh devices: \[+(?P<kind>\w+?)Device\(")
_SHAPE = re.compile(r"global_mesh devices shape: \((?P<shape>[\d, ]+)\)")
# The same line as the embedded runtime logs it.
_EMBEDDED_MESH = re.compile(r"The mesh has (?P<number>\d+) devices, the first is (?P<kind>\w+?)Device\(")
# On this machine, T5X sees the slice's devices, each of which is a CPU device.
_KINDS = {"Cpu": _CPU, "VirtualTpu": _CPU, "Tpu": _TPU}


@functools.cache
def _fell_back() -> re.Pattern[str]:
    """Returns the pattern of JAX's messages if it chooses the platform itself, and finds no TPU."""
    return re.compile("|".join(text.pattern.pattern for text in symptom_codes()["RUN11"].texts))


@dataclasses.dataclass(frozen=True)
class RanOn:
    """The devices that JAX used in a job.

    Attributes:
      devices: the devices, such as ``8 x TPU v3``, or why there were none; empty if nothing is known about them.
      platform: their platform: ``tpu``, ``cpu``, …; empty if there were none. It is also ``cpu`` if all that is known
        is that JAX found no TPU, which leaves the CPU of the TPU's host.
      platform_set: whether JAX's platforms were set, as by JAX_PLATFORMS; otherwise JAX chooses the best one. None if
        it is not known.
      reason: JAX's message on why it found no TPU, if it logged one.
      unknown: why nothing is known about the devices.
    """

    devices: str = ""
    platform: str = ""
    platform_set: bool | None = None
    reason: str = ""
    unknown: str = _NOT_SAID

    @property
    def fell_back(self) -> bool:
        """Whether the job ran on the CPU although nothing is known to have requested that."""
        return self.platform == _CPU and not self.platform_set

    def about(self, *, tpu: bool, emulated: bool) -> str:
        """Describes the devices in words.

        Args:
          tpu: whether the job's machine has a TPU.
          emulated: whether the job was sent to the emulated Vertex AI.
        """
        if not tpu or self.platform != _CPU:
            return self.devices or self.unknown
        devices = self.devices or _THE_CPU
        if emulated:
            return f"{devices}: the emulated Vertex AI has no TPU"
        why = {True: ", as JAX was set to take the CPU", False: ", as JAX found no TPU", None: ""}[self.platform_set]
        return f"{devices}: nothing ran on the TPU{why}"

    def no_tpu(self, job: str, machine: str) -> tuple[str, str]:
        """Returns the problem with a job that :attr:`fell_back` on a TPU's host, and the fix.

        Args:
          job: the job's display name.
          machine: the machine that the job requested.
        """
        on = f"it ran on {self.devices or _THE_CPU}, and on no TPU: "
        doctor = "t5x-harness doctor --image, run inside it, says what is wrong"
        if self.platform_set is None:
            return (
                f"{on}T5X in the job {job} made its mesh of the CPU of {machine}",
                "remove what makes JAX use the CPU: JAX_PLATFORMS in the image, jax_platforms in a module, or the "
                f"partitioner's backend. If there is none, the image needs jax[tpu], with its libtpu: {doctor}",
            )
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{on}JAX in the job {job} found none on {machine}, and fell back to the CPU{reason}",
            f"the image needs jax[tpu], with its libtpu: {doctor}",
        )


UNKNOWN = RanOn()
"""The devices if the log does not name any, or was not read."""


class LoggedDevices:
    """Finds the devices of a T5X job in the lines of its log.

    If there are several hosts, each logs the same. If any line names a mesh of TPUs, the job ran on TPUs.
    """

    def __init__(self) -> None:
        self._kind = ""
        self._number = 0
        self._reason = ""

    def read(self, text: str) -> None:
        """Reads a line of the log."""
        if found := _MESH.search(text):
            self._take(found["kind"])
        elif found := _EMBEDDED_MESH.search(text):
            self._take(found["kind"], int(found["number"]))
        elif self._kind and not self._number and (found := _SHAPE.search(text)):
            self._number = math.prod(int(side) for side in found["shape"].split(",") if side.strip())
        elif found := _fell_back().search(text):
            self._reason = self._reason or found[0]

    @property
    def ran_on(self) -> RanOn:
        """The devices named in the lines read so far."""
        kind = _KINDS.get(self._kind, self._kind)
        devices = f"{self._number} x {kind}" if self._number else kind
        if kind and kind != _CPU:
            return RanOn(devices, kind.lower())
        if self._reason:
            return RanOn(devices, _CPU, platform_set=False, reason=self._reason)
        return RanOn(devices, kind)

    def _take(self, kind: str, number: int = 0) -> None:
        if not self._kind or (_KINDS.get(kind) == _TPU and self._kind != kind):
            self._kind, self._number = kind, number
