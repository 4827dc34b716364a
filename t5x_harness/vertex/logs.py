"""Reads a job's log from Cloud Logging as it grows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

_URL = "https://logging.googleapis.com/v2/entries:list"
_PAGE = 1000
_SECONDS = 30.0
_MOST_PAGES = 100
_OK, _FORBIDDEN = 200, 403
_PASSING = frozenset({429, 500, 502, 503, 504})


class LogError(Exception):
    """The log cannot be read; the message says why. The job is not affected.

    Attributes:
      passing: whether it can probably be read later.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


@dataclasses.dataclass(frozen=True)
class LogLine:
    """One entry of a log.

    Attributes:
      replica: the replica that wrote it, such as ``workerpool0-0``; ``service`` for Vertex AI itself.
      text: its text.
      severity: its severity: ``INFO``, ``ERROR``, …
      timestamp: when it was written, in UTC and the form of RFC 3339.
    """

    replica: str
    text: str
    severity: str
    timestamp: str

    def __str__(self) -> str:
        return f"{self.replica}: {self.text}"


class LogReader:
    """Reads a job's log from where it stopped the last time.

    Entries arrive late and out of order, so the most recent period is requested again each time.

    Args:
      project: id or number of the job's project.
      job_id: the last part of its resource name.
      late: by how much a new entry may be older than the newest one.
    """

    def __init__(self, project: str, job_id: str, late: timedelta = timedelta(minutes=1)) -> None:
        self._late = late
        self._project = project
        self._filter = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"'
        self._newest: datetime | None = None
        self._seen: dict[str, datetime] = {}
        self._session: Any = None

    def new_lines(self) -> list[LogLine]:
        """Returns the entries that have not been read yet, in the order of their times.

        Raises:
          LogError: they cannot be read.
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
            raise LogError(f"the log cannot be read: {error}", passing=True) from None
        except GoogleAuthError as error:
            raise LogError(f"the log cannot be read: {error}") from None
        if answer.status_code != _OK:
            fix = f"; this needs roles/logging.viewer in {self._project}" if answer.status_code == _FORBIDDEN else ""
            raise LogError(
                f"the log cannot be read: {answer.status_code}, {_reason(answer)}{fix}",
                passing=answer.status_code in _PASSING,
            )
        entries: Mapping[str, Any] = answer.json()
        return entries


def _time(entry: Mapping[str, Any]) -> datetime:
    """Returns when an entry was written, rounded down to microseconds."""
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
