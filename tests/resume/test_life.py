"""The process that goes on with a killed training may begin beside it, and reads nothing of it before its end."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.resume.repeater import Repeatable, Repeater
from t5x_harness.spec import Fault, Hosts, Mode, RunSpec
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import OnProgress, RunProcess

Events = list[str]


class FakeTraining(RunProcess):
    """A process whose training says that it looks for a checkpoint, waits for its permit, and dies of its fault."""

    pid, log = 0, Path("resume/run.log")

    def __init__(self, name: str, events: Events, says: bool, comes: bool) -> None:
        self._name = name
        self._events = events
        self._says = says
        self._comes = comes
        self._closed = threading.Event()

    def call(
        self, method: str, /, *, timeout: float | None = None, on_progress: OnProgress | None = None, **given: Any
    ) -> Any:
        assert method == "train"
        assert on_progress is not None
        self._events.append(f"{self._name} begins, life {given['life']}, limit {timeout}")
        if self._says:
            on_progress({"stage": "resume", "looks": True})
        while given["permit"] and not Path(given["permit"]).exists():
            if self._closed.wait(0.001):
                self._events.append(f"{self._name} ends")
                raise RunDied("the run was closed")
        self._events.append(f"{self._name} reads")
        if given["fault"] is not None and self._comes:
            on_progress({"stage": "resume", "fault": "before the batch of step 2 was taken"})
            self._events.append(f"{self._name} dies")
            raise RunDied("the run was killed by SIGKILL")
        return {"metrics": {}}

    def close(self) -> None:
        """Ends it."""
        if not self._closed.is_set():
            self._events.append(f"{self._name} is closed")
        self._closed.set()


@pytest.fixture
def repeater(tmp_path: Path) -> Callable[..., tuple[Repeater, Events]]:
    """Returns a repeater of trainings that are called first, second and so on, and what happens to them."""

    def make(*, says: bool = True, comes: bool = True, hosts: Hosts = Hosts.ONE) -> tuple[Repeater, Events]:
        events: Events = []
        names = iter(["first", "second", "third"])

        def start(factory: str, folder: Path, spec: RunSpec, **argument: Any) -> RunProcess:
            folder.mkdir(parents=True, exist_ok=True)
            return FakeTraining(next(names), events, says, comes)

        spec = RunSpec.from_json({"gin_files": ["a.gin"], "slice": "v3-32"}).with_settings(hosts=hosts)
        training = Repeatable(Mode.TRAIN, (), "train.model_dir", "/model", "/model", False, "", None, None, None, 0, 4)
        return Repeater(spec, training, start, tmp_path, 60.0), events

    return make


def until(events: Events, event: str) -> None:
    """Waits for an event, which another thread adds."""
    deadline = time.monotonic() + 30
    while event not in events:
        assert time.monotonic() < deadline, events
        time.sleep(0.001)


FIRST = ["first begins, life 1, limit 60.0", "first reads", "first dies", "first is closed"]
SECOND = ["second begins, life 2, limit 120.0", "second reads", "second is closed"]


def test_the_next_process_begins_before_the_end_and_reads_after_it(repeater: Any) -> None:
    made, events = repeater()
    end = made.train("resumed", Fault(), 2, again=True)
    assert end.moment == "before the batch of step 2 was taken"
    until(events, SECOND[0])
    assert "second reads" not in events
    assert made.train("resumed").moment == ""
    assert [event for event in events if event.startswith("first")] == FIRST
    assert [event for event in events if event.startswith("second")] == SECOND
    assert events.index("second reads") > events.index("first is closed")


@pytest.mark.parametrize(
    ("given", "again"),
    [({}, False), ({"says": False}, True), ({"hosts": Hosts.EMULATED}, True)],
    ids=["nothing follows", "MODEL_DIR may have been read before", "hosts"],
)
def test_the_next_process_begins_after_the_end(repeater: Any, given: dict[str, Any], again: bool) -> None:
    made, events = repeater(**given)
    made.train("resumed", Fault(), 2, again=again)
    assert events == FIRST
    made.train("resumed")
    assert events == [*FIRST, "second begins, life 2, limit 60.0", "second reads", "second is closed"]


def test_a_process_that_waited_in_vain_is_closed(repeater: Any) -> None:
    made, events = repeater(comes=False)
    assert made.train("resumed", Fault(), 2, again=True).moment == ""
    until(events, "second is closed")
    assert "second reads" not in events
    made.train("another")
    assert "third begins, life 1, limit 60.0" in events


def test_both_processes_are_closed_with_the_repeater(repeater: Any) -> None:
    made, events = repeater()
    made.train("resumed", Fault(), 2, again=True)
    until(events, SECOND[0])
    made.close()
    until(events, "second ends")
    with pytest.raises(RunDied, match="the run was closed"):
        made.train("resumed")
    assert "second reads" not in events
