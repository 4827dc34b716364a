"""The lines of a job's log, of whatever form: whose line it is, what it says, and when.

It reads plain text, text with the colors of a terminal, lines that begin with the name of their host, and the entries
of Cloud Logging as JSON, one a line or laid out over several.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

_MOST_BYTES = 1 << 20
"""The longest line: a longer one is read as several, so that a file without line ends fits into memory, too."""

_COLORS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

_HOST = (
    r"(?:worker|task|host|process|rank)[ _:#=-]?(?P<host>\d{1,9})|[\w.-]+-w-(?P<vm>\d{1,9})|(?P<name>workerpool\d+-\d+)"
)
_PREFIX = re.compile(rf"(?:[\[(<](?:{_HOST})[\])>]:?|(?:{_HOST.replace('P<', 'P<bare_')}) *[:|])\s?", re.IGNORECASE)
"""``[task 3] text``, ``worker 3: text``, ``worker-3 | text``, ``t1v-n-1a2b-w-3: text``, ``workerpool1-2: text``."""

_LAID_OUT = re.compile(r'\s*"(?P<key>textPayload|message|task_name|worker_id)": (?P<value>".*"),?\s*')
_NEXT_ENTRY = "  {"
"""One line of an entry of Cloud Logging as ``gcloud`` lays out JSON, with a field a line, and the line before it."""

_SERVICE = "service"

_STAMP = re.compile(
    r"[IWEF](?P<day>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d+)"
    r"|\d{4}-(?P<month>\d\d)-(?P<date>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)"
)
"""The time in a line of absl or of C++ (``E1127 17:01:56.116535``), or in the form of ISO 8601."""


@dataclasses.dataclass(frozen=True)
class LogLine:
    """One line of a log.

    Attributes:
      number: the number of the line in its file, from 1.
      text: what it says, without the name of its host.
      host: the number of the host whose line it is; None if the line does not say.
      writer: the name of that host, such as ``host 3`` or ``workerpool1-2``; empty if the line does not say.
      time: month, day and time in a form that can be compared; empty if the line has none.
    """

    number: int
    text: str
    host: int | None = None
    writer: str = ""
    time: str = ""


def text_lines(stream: IO[bytes]) -> Iterator[str]:
    """Yields the lines of a file, one at a time. Bytes that are not UTF-8 are replaced."""
    while part := stream.readline(_MOST_BYTES):
        yield part.decode("utf-8", "replace")


def log_lines(texts: Iterable[str]) -> Iterator[LogLine]:
    """Yields the lines of a log. One text may have several lines, which all have its number.

    Args:
      texts: the lines as text, with or without their ends.
    """
    replica = ""
    for number, whole in enumerate(texts, 1):
        text = whole.rstrip("\n")
        if text == _NEXT_ENTRY:
            replica = ""
        if not text.startswith("   ") or not (field := _LAID_OUT.fullmatch(text)):
            yield from _parsed(number, text)
        elif field["key"] in ("task_name", "worker_id"):
            replica = _text(field["value"])
        else:
            yield from _of_entry(number, _text(field["value"]), replica)


def _parsed(number: int, text: str) -> Iterator[LogLine]:
    if "\x1b" in text:
        text = _COLORS.sub("", text)
    if text.startswith("{") and (entry := _entry(text)):
        yield from _of_entry(number, *entry)
        return
    # A carriage return begins the line anew, as bars of progress do; what was there before may still matter.
    for part in text.split("\r"):
        if part or "\r" not in text:
            yield _plain(number, part)


def _of_entry(number: int, text: str, replica: str, time: str = "") -> Iterator[LogLine]:
    """Yields the lines of an entry of Cloud Logging, whose replica is a host's number, a name, or empty.

    Vertex AI's own entries have the replica ``service``.
    """
    replica = "" if replica == _SERVICE else replica
    host, name = (int(replica), f"host {replica}") if replica.isdecimal() and len(replica) < 10 else (None, replica)
    for part in text.splitlines():
        line = _plain(number, part)
        own = (line.host, line.writer) if line.writer else (host, name)
        yield LogLine(number, line.text, *own, time or line.time)


def _text(quoted: str) -> str:
    """Returns the text of a string in JSON; what is not one is text itself."""
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted


def _plain(number: int, text: str) -> LogLine:
    found = _PREFIX.match(text)
    if found is None:
        return LogLine(number, text, time=_time(text))
    groups = {key.removeprefix("bare_"): value for key, value in found.groupdict().items() if value is not None}
    rest = text[found.end() :]
    if "name" in groups:
        return LogLine(number, rest, None, groups["name"], _time(rest))
    host = int(groups.get("host", groups.get("vm", "0")))
    return LogLine(number, rest, host, f"host {host}", _time(rest))


def _time(text: str) -> str:
    found = _STAMP.search(text, 0, 60)
    if found is None:
        return ""
    if found["day"]:
        return f"{found['day']} {found['time']}"
    return f"{found['month']}{found['date']} {found['clock']}"


def _entry(text: str) -> tuple[str, str, str] | None:
    """Returns the text, the host's number or name, and the time of an entry of Cloud Logging; None if it is none."""
    try:
        entry: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    payload = entry.get("jsonPayload")
    said = entry.get("textPayload") or (payload.get("message") if isinstance(payload, dict) else entry.get("message"))
    if not isinstance(said, str):
        return None
    resource = entry.get("resource")
    labels = resource.get("labels") if isinstance(resource, dict) else None
    labels = labels if isinstance(labels, dict) else {}
    return said, str(labels.get("worker_id") or labels.get("task_name") or ""), _time(str(entry.get("timestamp", "")))
