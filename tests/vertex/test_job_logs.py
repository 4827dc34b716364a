"""A job's log is read from where reading stopped, each entry once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from t5x_harness.vertex.logs import LogReader


def _entry(name: str, second: int, **payload: Any) -> dict[str, Any]:
    return {
        "insertId": name,
        "timestamp": f"2026-01-02T03:04:{second:02}Z",
        "severity": "INFO",
        "resource": {"labels": {"task_name": "workerpool0-0"}},
        **payload,
    }


class _Reader(LogReader):
    """Reads from a list, two entries a page; pages of one question have one filter."""

    def __init__(self, late: timedelta = timedelta(minutes=1)) -> None:
        super().__init__("my-project", "123", late)
        self.entries: list[dict[str, Any]] = []
        self._paged = ""

    def _ask(self, wanted: str, token: str) -> Mapping[str, Any]:
        assert not token or wanted == self._paged
        self._paged = wanted
        since = wanted.partition('timestamp>="')[2].rstrip('"')
        there = [e for e in self.entries if not since or _moment(e["timestamp"]) >= _moment(since)]
        end = int(token or 0) + 2
        return {"entries": there[end - 2 : end], **({"nextPageToken": str(end)} if end < len(there) else {})}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_each_entry_is_read_once_also_those_of_one_moment() -> None:
    reader = _Reader()
    reader.entries = [_entry("a", 1, textPayload="one\n"), _entry("b", 2, textPayload="two")]
    assert [str(line) for line in reader.new_lines()] == ["workerpool0-0: one", "workerpool0-0: two"]
    assert reader.new_lines() == []
    reader.entries += [_entry("c", 2, textPayload="three"), _entry("d", 3, jsonPayload={"message": "four"})]
    assert [line.text for line in reader.new_lines()] == ["three", "four"]


def test_what_comes_in_late_is_read_too() -> None:
    reader = _Reader()
    reader.entries = [_entry("b", 50, textPayload="later")]
    reader.new_lines()
    reader.entries = [_entry("a", 10, textPayload="late"), *reader.entries]
    assert [line.text for line in reader.new_lines()] == ["late"]
    reader.entries += [_entry("c", 59, textPayload="last")]
    assert [line.text for line in reader.new_lines()] == ["last"]


def test_all_pages_are_read() -> None:
    reader = _Reader()
    reader.entries = [_entry(str(n), n, textPayload=str(n)) for n in range(7)]
    assert [line.text for line in reader.new_lines()] == [str(n) for n in range(7)]


def test_entries_of_any_payload_have_a_text() -> None:
    reader = _Reader()
    reader.entries = [_entry("a", 1, jsonPayload={"step": 3}), _entry("b", 2)]
    assert [line.text for line in reader.new_lines()] == ["{'step': 3}", ""]


def test_no_more_is_asked_for_again_than_what_may_come_in_late() -> None:
    reader = _Reader(late=timedelta(seconds=2))
    reader.entries = [_entry("b", 50, textPayload="newest")]
    reader.new_lines()
    reader.entries = [_entry("a", 10, textPayload="too late"), _entry("c", 48, textPayload="late"), *reader.entries]
    assert [line.text for line in reader.new_lines()] == ["late"]


def test_a_structured_message_may_be_anything() -> None:
    reader = _Reader()
    reader.entries = [
        _entry("a", 1, jsonPayload={"message": 5}),
        _entry("b", 2, jsonPayload={"message": ["x"]}),
        _entry("c", 3, jsonPayload={"loss": 0.5}),
        _entry("d", 4, jsonPayload={}),
    ]
    assert [line.text for line in reader.new_lines()] == ["5", "['x']", "{'loss': 0.5}", ""]
