"""The output of jobs in the form of Cloud Logging, and as entries:list returns it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from job_service import read_entries

from t5x_harness.google.session import pages_of
from t5x_harness.google.vertex.jobs import logs
from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.logs import JobLog, LineSplitter
from t5x_harness.google.vertex.state.store import MemoryStore
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

PROJECT = {"resourceNames": ["projects/p"]}


def listed(service: Any, filter: str = "", **fields: Any) -> Any:
    """Returns the answer of entries:list, requested through the harness's own path."""
    return service.api.administer("entries", {**PROJECT, "filter": filter, "orderBy": "timestamp asc", **fields})


def entries_of(service: Any, job: Any) -> list[dict[str, Any]]:
    """Returns the entries with the output of a job's only replica."""
    entries = read_entries(service.api.services.state, job.name)
    return [entry for entry in entries if entry["logName"].endswith("workerpool0-0")]


def texts(answer: Any) -> list[str]:
    return [entry.get("textPayload", "") for entry in answer["entries"]]


def test_an_entry_has_the_shape_of_cloud_logging(service: Any) -> None:
    job = service.ended(service.shell("echo hello; echo oops >&2"))
    out, err = entries_of(service, job)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", out.pop("timestamp"))
    assert out.pop("receiveTimestamp")
    assert out.pop("insertId") != err["insertId"]
    assert out == {
        "severity": "INFO",
        "textPayload": "hello",
        "resource": {
            "type": "ml_job",
            "labels": {"project_id": "p", "job_id": job.name.rpartition("/")[2], "task_name": "workerpool0-0"},
        },
        "labels": {"ml.googleapis.com/job_id/log_area": "root"},
        "logName": "projects/p/logs/workerpool0-0",
    }
    assert (err["severity"], err["textPayload"]) == ("ERROR", "oops")


def test_a_line_of_json_is_structured(service: Any) -> None:
    line = '{"message": "slow", "severity": "warning", "step": 3}'
    twice = '{"step": 1, "step": 2, "text": "\\u0000\\ud83d\\ude00"}'
    job = service.ended(service.run("printf", "%s\\n", line, "{no json", '{"severity": "odd"}', twice))
    said = entries_of(service, job)
    assert [(e["severity"], e.get("jsonPayload"), e.get("textPayload")) for e in said] == [
        ("WARNING", {"message": "slow", "step": 3}, None),
        ("INFO", None, "{no json"),
        ("DEFAULT", {}, None),
        ("INFO", {"step": 2, "text": "\x00\U0001f600"}, None),
    ]


_ODD_LINES = {
    "nested": b'{"a":' + b"[" * 60_000,
    "nested and closed": b'{"a":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    "not a number": b'{"loss": NaN, "bound": -Infinity}',
    "beyond a double": b'{"loss": 1e999}',
    "a long integer": b'{"step": ' + b"9" * 400 + b"}",
    "more digits than Python reads": b'{"step": ' + b"9" * 5_000 + b"}",
    "half a pair": b'{"text": "\\ud800"}',
    "half a pair as a name": b'{"\\ud800": 1}',
    "control characters": b"\x00\x01\x1b[31m\x7f\xc2\x85 \xe2\x80\xa8",
    "not UTF-8": b"\xff\xfe\xed\xa0\x80",
    "huge": b"x" * 1_000_000,
}


@pytest.mark.parametrize("line", _ODD_LINES.values(), ids=_ODD_LINES)
def test_whatever_a_program_prints_stays_listable(service: Any, tmp_path: Path, line: bytes) -> None:
    service.api.services.projects.number("p")
    state = service.api.services.state
    log = JobLog(f"projects/{service.api.services.projects.number('p')}/locations/l/customJobs/7", "p", state, tmp_path)
    lines = LineSplitter()
    log.write("workerpool0-0", [*lines.feed(line + b"\nafter\n"), *lines.feed(b"")], "INFO")
    entries = listed(service)["entries"]
    json.dumps(entries, allow_nan=False, ensure_ascii=False).encode()
    assert [entry["textPayload"] for entry in entries][-1] == "after", "a line that is not structured is text"
    assert (tmp_path / "workerpool0-0.log").read_text(encoding="utf-8").endswith("after\n")


def test_what_the_service_quotes_may_be_no_unicode(service: Any, tmp_path: Path) -> None:
    log = JobLog("projects/1/locations/l/customJobs/7", "p", service.api.services.state, tmp_path)
    log.service("no such file: \udcff.gin")
    assert texts({"entries": read_entries(service.api.services.state, log.name)}) == ["no such file: ?.gin"]


def test_the_service_tells_the_course_of_a_job(service: Any) -> None:
    job = service.ended(service.shell("exit 1"))
    waiting, starting, why, end = service.said(job, "service")
    assert waiting == "Waiting for job to be provisioned."
    assert starting == "Waiting for training program to start."
    assert why == job.error.message
    assert end == "Job failed."


def test_all_that_was_said_is_there_once_a_job_has_ended(service: Any) -> None:
    job = service.ended(service.shell("seq 20000; printf 'no end of line'"))
    assert service.said(job) == [*map(str, range(1, 20001)), "no end of line"]
    folder = service.api.services.settings.folder / job.name.rpartition("/")[2]
    assert (folder / "workerpool0-0.log").read_text().split("\n")[:2] == ["1", "2"]


def test_lines_are_cut_as_they_come_and_long_ones_between_characters() -> None:
    lines = LineSplitter()
    assert [lines.feed(data) for data in (b"a\nb", b"c\r\n\n\xff", b"", b"")] == [
        ["a"],
        ["bc", ""],
        ["\N{REPLACEMENT CHARACTER}"],
        [],
    ]
    text = "ü€😀" * 10_000
    data = text.encode()
    said = [line for start in range(0, len(data), 1_000) for line in lines.feed(data[start : start + 1_000])]
    said += lines.feed(b"")
    assert (len(said) > 1, "".join(said)) == (True, text)


def test_entries_are_chosen_by_job_task_severity_and_time(service: Any) -> None:
    first, second = (service.ended(service.shell(f"echo {word}; echo bad >&2")) for word in ("one", "two"))
    job_id = second.name.rpartition("/")[2]
    mine = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"'
    assert texts(listed(service, f'{mine} AND resource.labels.task_name="workerpool0-0"')) == ["two", "bad"]
    assert texts(listed(service, f"{mine} severity>=ERROR")) == ["bad"]
    assert texts(listed(service, f'{mine} textPayload:"TW"')) == ["two"]
    assert texts(listed(service, f'{mine} NOT resource.labels.task_name="service" severity!=ERROR')) == ["two"]
    assert "one" in texts(listed(service))
    assert first.name != second.name
    middle = next(e for e in listed(service, mine)["entries"] if e.get("textPayload") == "two")
    after = f'((timestamp="{middle["timestamp"]}" AND insertId>"~") OR timestamp>"{middle["timestamp"]}")'
    assert texts(listed(service, f"{mine} AND {after}"))[0] == "bad"
    assert "two" not in texts(listed(service, f'{mine} AND timestamp<"{middle["timestamp"]}"'))


def test_entries_come_in_pages_and_in_both_orders(service: Any) -> None:
    service.ended(service.shell("seq 5"))
    chosen = 'resource.labels.task_name="workerpool0-0"'
    pages = pages_of(lambda token: listed(service, chosen, pageSize=2, pageToken=token))
    assert [texts(page) for page in pages] == [["1", "2"], ["3", "4"], ["5"]]
    assert texts(listed(service, chosen, orderBy="timestamp desc")) == ["5", "4", "3", "2", "1"]


class _Counting(MemoryStore):
    """Counts the elements of lists that are read."""

    elements = 0

    def read(self, key: str, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Reads from a list; see :class:`StateStore`."""
        found = super().read(key, start, stop)
        self.elements += len(found)
        return found


def test_a_long_log_costs_what_is_new_of_it(make_service: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    state = _Counting()
    service = make_service(state)
    log = JobLog("projects/1/locations/us-central1/customJobs/7", "p", state, tmp_path)
    service.api.services.projects.number("p")
    start = 1_700_000_000_000_000_000
    for number in range(1000):
        monkeypatch.setattr(logs.time, "time_ns", lambda number=number: start + number * 1_000_000_000)
        log.write("workerpool0-0", [f"{number} {line}" for line in range(20)], "INFO")
    kept = sum(len(each) for each in state.read(f"{log.name}#log"))
    assert kept < 3 * (tmp_path / "workerpool0-0.log").stat().st_size, "an entry of its own takes forty times as much"
    mine = 'resource.labels.job_id="7"'
    projects = {"resourceNames": [f"projects/{log.name.split('/')[1]}"]}
    state.elements = 0
    new = listed(service, f'{mine} AND timestamp>="2023-11-14T22:29:58Z"', **projects)
    assert texts(new) == [f"{number} {line}" for number in (998, 999) for line in range(20)]
    page = listed(service, mine, pageSize=1000, **projects)
    assert len(page["entries"]) == 1000
    state.elements = 0
    rest = listed(service, f"{mine} AND timestamp>={page['entries'][-1]['timestamp']!r}", **projects)
    assert texts(rest)[0] == texts(page)[-1]
    first = state.elements
    state.elements = 0
    assert texts(listed(service, mine, pageToken=page["nextPageToken"], **projects))[0] == "50 0"
    assert state.elements <= first
    state.elements = 0
    assert texts(listed(service, f'{mine} AND timestamp>"2023-11-14T22:30:00Z"', **projects)) == []
    assert state.elements < 20


@pytest.mark.parametrize(
    "question",
    [
        {"orderBy": "severity"},
        {"pageToken": "!"},
        {"filter": "f(x)"},
        {"filter": 'timestamp>"soon"'},
        {"filter": "("},
        {"filter": "a." * 20_000 + "a=1"},
        {"pageSize": -1},
        {"pageSize": "many"},
        {"pageSize": 1.5},
        {"pageSize": True},
        {"pageSize": "1" * 5000},
        {"resourceNames": "projects/p"},
        {"resourceNames": [5]},
    ],
)
def test_what_cannot_be_answered_is_refused(service: Any, question: dict[str, Any]) -> None:
    assert service.ended(service.shell("true")).state == JobState.SUCCEEDED
    with pytest.raises(ApiError) as refused:
        service.api.administer("entries", {**PROJECT, **question})
    assert refused.value.code is StatusCode.INVALID_ARGUMENT
