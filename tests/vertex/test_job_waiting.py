"""Waiting ends with the job, however that ends, with the time limit, or with Ctrl-C, which is never lost."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from interrupts import dropped

from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.submitted import ENDED, JobOutcome, SubmittedJob
from t5x_harness.vertex.waiting import Interrupts, Patience, WaitError, wait_for


class _Job:
    """A job with predefined states; it stays in the last one."""

    name = "projects/1/locations/us-central1/customJobs/2"
    page = "https://console"

    def __init__(self, *states: str) -> None:
        self._states: Iterator[str] = iter(states)
        self._state = ""

    def look(self) -> JobOutcome:
        self._state = next(self._states, self._state)
        return JobOutcome(self._state, "out of memory" if self._state == "JOB_STATE_FAILED" else "")


def _wait(*states: str, seconds: float | None = None, seen: list[str] | None = None) -> JobOutcome:
    job = cast(SubmittedJob, _Job(*states))
    on_state = seen.append if seen is not None else None
    return wait_for(job, seconds=seconds, on_state=on_state, patience=Patience(longest=0.0))


@pytest.mark.parametrize("end", sorted(ENDED))
def test_every_end_ends_the_wait(end: str) -> None:
    seen: list[str] = []
    outcome = _wait("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_RUNNING", end, seen=seen)
    assert outcome.state == end
    assert outcome.succeeded is (end == "JOB_STATE_SUCCEEDED")
    assert seen == ["JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING", end]


def test_a_job_that_ended_before_the_first_look_is_an_end() -> None:
    assert str(_wait("JOB_STATE_FAILED")) == "failed: out of memory"


@pytest.mark.parametrize("state", ["JOB_STATE_PAUSED", "JOB_STATE_CANCELLING", "JOB_STATE_RUNNING"])
def test_what_does_not_end_is_left_at_the_deadline(state: str) -> None:
    with pytest.raises(WaitError) as caught:
        _wait(state, seconds=0.0)
    assert str(caught.value).startswith(
        f"projects/1/locations/us-central1/customJobs/2 is {JobOutcome(state)} after 0 s. It goes on until its own"
    )


def test_the_ends_are_those_of_the_api() -> None:
    types = pytest.importorskip("google.cloud.aiplatform_v1").types
    assert set(types.JobState.__members__) >= ENDED


def test_each_look_is_followed_also_the_last() -> None:
    looks: list[int] = []
    job = cast(SubmittedJob, _Job("JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"))
    wait_for(job, on_look=lambda: bool(looks.append(1)), patience=Patience(longest=0.0))
    assert len(looks) == 2


class _Disturbed(_Job):
    """A job whose state can be read only after some errors."""

    def __init__(self, *errors: VertexError) -> None:
        super().__init__("JOB_STATE_SUCCEEDED")
        self._errors = list(errors)

    def look(self) -> JobOutcome:
        if self._errors:
            raise self._errors.pop(0)
        return super().look()


def test_an_emulation_that_nobody_answers_for_any_more_is_no_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = VertexError("503", passing=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("T5X_HARNESS_GCS_ROOT", "/somewhere")
        assert wait_for(cast(SubmittedJob, _Disturbed(passing)), patience=Patience(longest=0.0)).succeeded
    with pytest.raises(VertexError) as caught:
        wait_for(cast(SubmittedJob, _Disturbed(passing)), patience=Patience(longest=0.0))
    assert str(caught.value) == (
        "the emulated Google Cloud was killed (out of memory?), and with it "
        "projects/1/locations/us-central1/customJobs/2"
    )


def test_a_disturbance_passes_and_a_refusal_does_not() -> None:
    passing = VertexError("503", passing=True)
    job = cast(SubmittedJob, _Disturbed(passing, passing))
    assert wait_for(job, patience=Patience(longest=0.0)).succeeded
    refused = cast(SubmittedJob, _Disturbed(VertexError("403")))
    with pytest.raises(VertexError, match="403"):
        wait_for(refused, patience=Patience(longest=0.0))


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    interrupts.begin()
    yield interrupts
    interrupts.end()


drops_interrupt = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def where_all_is_caught() -> None:
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


@drops_interrupt
@pytest.mark.parametrize("drop", [dropped, where_all_is_caught])
def test_an_interrupt_that_was_dropped_is_heard_until_it_is_acted_upon(
    interrupts: Interrupts, drop: Callable[[], None]
) -> None:
    interrupts.raise_pending()
    drop()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_pending()
    interrupts.forget()
    interrupts.raise_pending()
    drop()
    with pytest.raises(KeyboardInterrupt):
        interrupts.raise_pending()


def test_an_interrupt_waits_for_the_end_of_the_block(interrupts: Interrupts) -> None:
    done = []

    def send() -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            done.append("sent")

    with pytest.raises(KeyboardInterrupt):
        send()
    assert done == ["sent"]


@drops_interrupt
def test_nothing_is_begun_after_an_interrupt_that_was_dropped(interrupts: Interrupts) -> None:
    done = []
    dropped()
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        done.append("sent")
    assert done == []


def test_an_error_in_the_block_is_raised(interrupts: Interrupts) -> None:
    with pytest.raises(ValueError, match="refused"), interrupts.held():
        raise ValueError("refused")
    with pytest.raises(KeyboardInterrupt):  # raised at once, as before the block
        signal.raise_signal(signal.SIGINT)


def test_a_handler_that_raises_nothing_hears_each_interrupt_once(interrupts: Interrupts) -> None:
    heard: list[int] = []
    interrupts.end()
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    interrupts.begin()
    signal.raise_signal(signal.SIGINT)
    interrupts.raise_pending()
    with interrupts.held():
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT]
    interrupts.raise_pending()
    assert heard == [signal.SIGINT, signal.SIGINT]


def test_afterwards_interrupts_are_handled_as_before(interrupts: Interrupts) -> None:
    interrupts.begin()
    interrupts.end()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts.end()


def test_a_handler_that_came_later_stays(interrupts: Interrupts) -> None:
    def of_a_debugger(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGINT, of_a_debugger)
    interrupts.end()
    assert signal.getsignal(signal.SIGINT) is of_a_debugger


def test_where_interrupts_are_ignored_they_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts = Interrupts()
    interrupts.begin()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_the_handler_alone() -> None:
    seen = []

    def look() -> None:
        interrupts = Interrupts()
        interrupts.begin()
        with interrupts.held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
