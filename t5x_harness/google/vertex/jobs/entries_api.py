"""Cloud Logging's ``entries:list`` over the logs of jobs, as far as clients of Vertex AI ask for it."""

from __future__ import annotations

import base64
import binascii
import operator
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from t5x_harness.google.vertex.api.errors import ApiError, Code
from t5x_harness.google.vertex.api.filters import And, Expression, Function, Not, Or, Restriction, parse_filter
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.jobs.logs import jobs_with_logs, read_entries

__all__ = ["list_entries"]

_PAGE, _LARGEST_PAGE = 50, 1000
_SEVERITIES = "DEFAULT DEBUG INFO NOTICE WARNING ERROR CRITICAL ALERT EMERGENCY".split()
_ORDERS = {"": False, "timestamp": False, "timestamp asc": False, "timestamp desc": True}
_COMPARISONS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_JOB_ID = ("resource", "labels", "job_id")


def list_entries(api: Api, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answers a request.

    Args:
      api: that has the jobs.
      request: ``resourceNames``, ``filter``, ``orderBy``, ``pageSize`` and ``pageToken``, as JSON has them.

    Returns:
      ``entries`` and, where there are more, ``nextPageToken``.

    Raises:
      ApiError: INVALID_ARGUMENT: it cannot be read.
    """
    order = str(request.get("orderBy") or "")
    if order not in _ORDERS:
        raise ApiError(Code.INVALID_ARGUMENT, f"orderBy {order!r} is none of timestamp asc and timestamp desc")
    text = str(request.get("filter") or "")
    wanted = parse_filter(text) if text.strip() else And(())
    projects = [api.projects.number(str(n).split("/")[1]) for n in request.get("resourceNames", ()) if "/" in str(n)]
    entries = [entry for entry in _entries(api, projects, wanted) if _holds(wanted, entry)]
    entries.sort(key=lambda entry: (_nanoseconds(entry["timestamp"]), entry["insertId"]), reverse=_ORDERS[order])
    start = _offset(str(request.get("pageToken") or ""))
    size = min(int(request.get("pageSize") or _PAGE), _LARGEST_PAGE)
    end = start + size
    more = {"nextPageToken": base64.urlsafe_b64encode(str(end).encode()).decode()} if end < len(entries) else {}
    return {"entries": entries[start:end], **more}


def _entries(api: Api, projects: list[str], wanted: Expression) -> Iterator[dict[str, Any]]:
    """The entries that can hold; those of a trial are in the log of its tuning job as well."""
    seen: set[str] = set()
    job_ids = set(_job_ids(wanted))
    for project in projects:
        for name in jobs_with_logs(api.state, project):
            if job_ids and name.rpartition("/")[2] not in job_ids:
                continue
            for entry in read_entries(api.state, name):
                if entry["insertId"] not in seen:
                    seen.add(entry["insertId"])
                    yield entry


def _job_ids(wanted: Expression) -> Iterator[str]:
    """The only job that can hold, where a filter names one."""
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
            raise ApiError(Code.INVALID_ARGUMENT, f"Unknown function {name}")
        case Restriction(path, sign, value):
            return _compares(_field(entry, path), sign, value, path)


def _field(entry: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """A field; labels have dots in their names, which a filter quotes."""
    value: Any = entry
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


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
    """A time of RFC 3339, which Python's own reader cuts to microseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    zone = fraction[len(digits) :] or "+00:00"
    try:
        seconds = int(datetime.fromisoformat(whole + ("" if "+" in whole[10:] else zone)).timestamp())
    except ValueError:
        raise ApiError(Code.INVALID_ARGUMENT, f"{text!r} is no timestamp") from None
    return seconds * 1_000_000_000 + int(digits.ljust(9, "0")[:9] or 0)


def _offset(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token.encode() or b"MA=="))
    except (ValueError, binascii.Error):
        raise ApiError(Code.INVALID_ARGUMENT, "Invalid pageToken") from None
