"""Ctrl-C at every point of a job's way, also where Python or a library drops it: the job is cancelled."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import t5x_harness.promotion.jobs as jobs_module
import t5x_harness.vertex.launching as launching_module
from t5x_harness.buckets.folders import Folder
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.promotion.jobs import PromotedJobs
from t5x_harness.promotion.settings import PromotionSettings
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.job import SPEC_LABEL
from t5x_harness.vertex.logs import LogReader
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.vertex.target import EMULATED, VertexTarget

# What a destructor raises is told as a warning.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

FIRST = ContainerJob(
    "first-1",
    VertexTarget(**EMULATED),
    Machine.of_slice("v3-8"),
    command=("python", "-c", "import time; print('here', flush=True); time.sleep(300)"),
    timeout=600,
    output="gs://t5x-harness-jobs/out",
    labels={SPEC_LABEL: "first"},
)
SECOND = dataclasses.replace(FIRST, name="second-1", labels={SPEC_LABEL: "second"})

POINTS = {
    "looking for the same job": (jobs_module, "running_with_label"),
    "making the bucket": (Folder, "create_bucket"),
    "staging": (Folder, "put"),
    "sending": (launching_module, "send"),
    "looking at the job": (SubmittedJob, "look"),
    "reading the log": (LogReader, "new_lines"),
}


class Interrupting:
    """Is interrupted in its destructor, as a gRPC channel may be that the SDK is done with."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def dropped() -> None:
    Interrupting()


def raised() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def jobs(vertex: FakeVertex) -> Iterator[PromotedJobs]:
    """Jobs of a session that hears Ctrl-C as usual; the session ends with the test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    jobs = PromotedJobs(PromotionSettings("emulated", parallel=2, max_chip_hours=16), lambda text: None)
    yield jobs
    jobs.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def interrupt_once(
    monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], interrupt: Callable[[], None], *, after: bool
) -> None:
    """Has the next call of a function be interrupted."""
    function, left = getattr(*place), [interrupt]

    def interrupted(*args: Any, **keywords: Any) -> Any:
        if left and not after:
            left.pop()()
        result = function(*args, **keywords)
        if left:
            left.pop()()
        return result

    monkeypatch.setattr(*place, interrupted)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("interrupt", [dropped, raised])
@pytest.mark.parametrize("point", POINTS)
def test_ctrl_c_ends_the_session_and_its_jobs(
    jobs: PromotedJobs,
    vertex: FakeVertex,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    point: str,
    interrupt: Callable[[], None],
    after: bool,
) -> None:
    jobs.send(FIRST, {})
    interrupt_once(monkeypatch, POINTS[point], interrupt, after=after)
    with pytest.raises(KeyboardInterrupt):
        jobs.follow(jobs.send(SECOND, {"gs://t5x-harness-jobs/stage": []}), tmp_path / "log", None)
    lines = jobs.close()
    there = vertex.jobs()
    assert {vertex.wait(job.name).state for job in there} == {"JOB_STATE_CANCELLED"}
    assert {line.partition(",")[0] for line in lines} == {f"cancelled the job {job.name}" for job in there}


@pytest.mark.parametrize("interrupt", [dropped, raised])
def test_a_second_ctrl_c_says_which_jobs_go_on(
    jobs: PromotedJobs, vertex: FakeVertex, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    first, second = jobs.send(FIRST, {}).submitted, jobs.send(SECOND, {}).submitted
    interrupt_once(monkeypatch, (SubmittedJob, "cancel"), interrupt, after=True)
    told, left = jobs.close()
    if interrupt is dropped:
        assert told == f"cancelled the job {first.name}, which had not ended: {first.page}"
    else:
        assert told.startswith(
            f"Ctrl-C cut short the cancelling of {first.name}. It may go on and be paid for: gcloud "
        )
    assert left == (
        f"Ctrl-C cut short the cancelling of {second.name}. It may go on and be paid for: "
        f"gcloud ai custom-jobs cancel {second.id} --project=t5x-harness --region=us-central1"
    )
    assert vertex.wait(first.id).state == "JOB_STATE_CANCELLED"
    assert not second.has_ended


def test_a_ctrl_c_that_somebody_has_seen_is_over(jobs: PromotedJobs) -> None:
    jobs.send(FIRST, {})
    with pytest.raises(KeyboardInterrupt) as seen:
        raised()
    jobs.raise_pending_interrupt(seen.value)
    jobs.raise_pending_interrupt(None)
    dropped()
    with pytest.raises(KeyboardInterrupt):
        jobs.raise_pending_interrupt(None)
