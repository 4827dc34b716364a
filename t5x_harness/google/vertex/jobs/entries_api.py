"""Cloud Logging's ``entries:list`` over the logs of jobs, as far as clients of Vertex AI use it."""

from __future__ import annotations

import base64
import operator
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from t5x_harness.google.vertex.jobs.logs import LoggedLine, jobs_with_logs, read_lines
from t5x_harness.google.vertex.messages.filters import And, Expression, Function, Not, Or, Restriction, parse_filter
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import invalid_argument

_PAGE, _LARGEST_PAGE = 50, 1000
_LONGEST_FILTER = 20_000  # Cloud Logging's limit
_MOST_DIGITS = 10  # in a 32-bit number
_SEVERITIES = "DEFAULT DEBUG INFO NOTICE WARNING ERROR CRITICAL ALERT EMERGENCY".split()
_ORDERS = {"": False, "timestamp": False, "timestamp asc": False, "timestamp desc": True}
_COMPARISONS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_JOB_ID = ("resource", "labels", "job_id")


def list_entries(services: Services, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answers a request.

    Args:
      request: the JSON object with ``resourceNames``, ``filter``, ``orderBy``, ``pageSize`` and ``pageToken``.

    Returns:
      ``entries`` and, if there are more, ``nextPageToken``.

    Raises:
      ApiError: INVALID_ARGUMENT: the request cannot be read.
    """
    if not isinstance(request, Mapping):
        raise invalid_argument("Invalid JSON payload received. Root element must be a message.")
    order = str(request.get("orderBy") or "")
    if order not in _ORDERS:
        raise invalid_argument(f"orderBy {order!r} is none of timestamp asc and timestamp desc")
    text = str(request.get("filter") or "")
    if len(text) > _LONGEST_FILTER:
        raise invalid_argument(f"the filter has {len(text)} characters, and may have {_LONGEST_FILTER} at most")
    wanted = parse_filter(text) if text.strip() else And(())
    projects = [services.projects.number(name.split("/")[1]) for name in _names(request) if "/" in name]
    size = _page_size(request)
    descending = _ORDERS[order]
    last = _last_of(str(request.get("pageToken") or ""))
    found: list[tuple[LoggedLine, dict[str, Any]]] = []
    for line in _lines(services, projects, wanted, last, descending):
        if _holds(wanted, entry := line.entry()):
            if len(found) == size:
                last_line = found[-1][0]
                following = base64.urlsafe_b64encode(f"{last_line.at} {last_line.id}".encode()).decode()
                return {"entries": [entry for _, entry in found], "nextPageToken": following}
            found.append((line, entry))
    return {"entries": [entry for _, entry in found]}


def _names(request: Mapping[str, Any]) -> list[str]:
    given = request.get("resourceNames") or []
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise invalid_argument(f"resourceNames {given!r} is not a list of names: [projects/my-project]")
    return given


def _page_size(request: Mapping[str, Any]) -> int:
    given = request.get("pageSize") or _PAGE
    text = str(given)  # a number in JSON may be a string
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise invalid_argument(f"pageSize {given!r} is not a number of entries, from 0 up")
    return min(int(text), _LARGEST_PAGE) or _PAGE


def _lines(
    services: Services, projects: list[str], wanted: Expression, last: tuple[int, str] | None, descending: bool
) -> list[LoggedLine]:
    """Returns the lines after the last one of the previous page, in order, leaving out most lines that cannot match.

    The lines of a trial are also in the log of its tuning job.
    """
    since = _since(wanted) or 0
    if last is not None and not descending:
        since = max(since, last[0])
    job_ids = set(_job_ids(wanted))
    lines: dict[str, LoggedLine] = {}
    for project in projects:
        for name in jobs_with_logs(services.state, project):
            if not job_ids or name.rpartition("/")[2] in job_ids:
                lines |= {line.id: line for line in read_lines(services.state, name, since)}
    behind = (line for line in lines.values() if last is None or (line[:2] < last if descending else line[:2] > last))
    return sorted(behind, key=operator.itemgetter(0, 1), reverse=descending)


def _since(wanted: Expression) -> int | None:
    """Returns the earliest time of an entry that can match, or None if the filter does not bound it."""
    match wanted:
        case Restriction(("timestamp",), "=" | ">" | ">=", value):
            return _nanoseconds(value)
        case And(operands):
            return max((time for each in operands if (time := _since(each)) is not None), default=None)
        case Or(operands):
            times = [_since(each) for each in operands]
            return None if None in times else min((time for time in times if time is not None), default=None)
    return None


def _job_ids(wanted: Expression) -> Iterator[str]:
    """Yields the number of the only job that can match, if the filter names one."""
    match wanted:
        case Restriction(path, "=", value) if path == _JOB_ID:
            yield value
        case And(operands):
            for each in operands:
                yield from _job_ids(each)


def _holds(wanted: Expression, entry: Mapping[str, Any]) -> bool:
    match wanted:
        case And(operands):
            return all(_holds(each, entry) for each in operands)
        case Or(operands):
            return any(_holds(each, entry) for each in operands)
        case Not(operand):
            return not _holds(operand, entry)
        case Function(name, _):
            raise invalid_argument(f"Unknown function {name}")
        case Restriction(path, sign, value):
            found: Any = entry
            for part in path:  # labels have dots in their names, so a filter quotes the names
                found = found.get(part) if isinstance(found, Mapping) else None
            return _compares(found, sign, value, path)


def _compares(found: Any, sign: str, value: str, path: tuple[str, ...]) -> bool:
    if sign == "!=":
        return not _compares(found, "=", value, path)
    if found is None:
        return False
    if sign == ":":
        return value == "*" or value.casefold() in str(found).casefold()
    one, other = _comparable(path, str(found)), _comparable(path, value)
    return bool(_COMPARISONS[sign](one, other))


def _comparable(path: tuple[str, ...], text: str) -> Any:
    if path in (("timestamp",), ("receiveTimestamp",)):
        return _nanoseconds(text)
    if path == ("severity",):
        return _SEVERITIES.index(text.upper()) if text.upper() in _SEVERITIES else -1
    return text


def _nanoseconds(text: str) -> int:
    """Parses an RFC 3339 time, which Python's own parser would truncate to microseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    zone = fraction[len(digits) :] or "+00:00"
    try:
        seconds = int(datetime.fromisoformat(whole + ("" if "+" in whole[10:] else zone)).timestamp())
    except ValueError:
        raise invalid_argument(f"{text!r} is not a timestamp") from None
    return seconds * 1_000_000_000 + int(digits.ljust(9, "0")[:9] or 0)


def _last_of(token: str) -> tuple[int, str] | None:
    """Returns the time and the id of the last entry on the page that came with a token."""
    if not token:
        return None
    try:
        at, insert_id = base64.urlsafe_b64decode(token.encode()).decode().split(" ")
        return int(at), insert_id
    except ValueError:
        raise invalid_argument("Invalid pageToken") from None
