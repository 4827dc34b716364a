"""Jobs of a session: refused before they cost money, limited in number, and canceled at its end and by Ctrl-C."""

import dataclasses
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interrupts import dropped

import t5x_harness.promotion.jobs as jobs_module
import t5x_harness.vertex.launching as launching_module
from t5x_harness.buckets.folders import Folder, StagedFile
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.promotion.jobs import JobNotSent, JobRefused, PromotedJobs
from t5x_harness.promotion.marker import ResourcesError
from t5x_harness.promotion.order import JobOrder
from t5x_harness.promotion.settings import PromotionSettings
from t5x_harness.vertex.container import ContainerJob
from t5x_harness.vertex.job import SPEC_LABEL
from t5x_harness.vertex.logs import LogReader
from t5x_harness.vertex.machine import ChipHoursError, Machine
from t5x_harness.vertex.submitted import JobOutcome, SubmittedJob
from t5x_harness.vertex.target import EMULATED, VertexTarget

# Pytest reports an exception in a destructor as a warning.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SETTINGS = PromotionSettings("emulated", parallel=2, max_chip_hours=16)
TARGET = VertexTarget(**EMULATED)
SLEEP = ContainerJob(
    "sleep-1",
    TARGET,
    Machine.of_slice("v3-8"),
    command=("python", "-c", "import time; print('here', flush=True); time.sleep(300)"),
    timeout=600,
    output="gs://t5x-harness-jobs/out",
    labels={SPEC_LABEL: "same"},
)
SHORT = dataclasses.replace(
    SLEEP, name="short-1", command=("python", "-c", "print('done')"), labels={SPEC_LABEL: "other"}
)


@pytest.fixture
def jobs(vertex: FakeVertex) -> Iterator[PromotedJobs]:
    """The jobs of a session with the usual handling of Ctrl-C; the session ends with the test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    jobs = PromotedJobs(SETTINGS, lambda text: None)
    yield jobs
    jobs.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def send(jobs: PromotedJobs, job: ContainerJob, **staged: bytes) -> Any:
    return jobs.send(job, {"gs://t5x-harness-jobs/stage": [StagedFile(name, text) for name, text in staged.items()]})


def test_the_very_same_job_is_not_sent_again_while_it_runs(jobs: PromotedJobs) -> None:
    first = send(jobs, SLEEP).submitted
    with pytest.raises(JobRefused) as caught:
        send(jobs, dataclasses.replace(SLEEP, name="sleep-2"))
    assert str(caught.value) == (
        f"the job {first.name} (sleep-1) does the very same and has not ended: take it with "
        f"--t5x-tpu-reuse={first.id}, or cancel it ({first.page})"
    )


def test_what_has_not_ended_with_the_session_is_cancelled(
    jobs: PromotedJobs, vertex: FakeVertex, tmp_path: Path
) -> None:
    first, short = send(jobs, SLEEP).submitted, send(jobs, SHORT)
    assert not jobs.has_room
    ended = jobs.follow(short, tmp_path / "log", None)
    assert ended.outcome == JobOutcome("JOB_STATE_SUCCEEDED")
    assert "workerpool0-0: done\n" in (tmp_path / "log").read_text()
    assert jobs.has_room
    assert jobs.close() == [f"cancelled the job {first.name}, which had not ended: {first.page}"]
    assert vertex.wait(first.id).state == "JOB_STATE_CANCELLED"
    assert jobs.close() == []


def test_a_job_that_somebody_cancels_is_followed_to_its_end(
    jobs: PromotedJobs, vertex: FakeVertex, tmp_path: Path
) -> None:
    job = send(jobs, SLEEP)
    vertex.wait(job.submitted.id, {"JOB_STATE_RUNNING"})
    job.cancel()
    ended = jobs.follow(job, tmp_path / "log", None)
    assert ended.outcome is not None
    assert ended.outcome.state == "JOB_STATE_CANCELLED"


def test_only_what_is_listed_is_put_into_the_bucket(jobs: PromotedJobs, vertex: FakeVertex) -> None:
    send(jobs, SHORT, **{"gin/run.gin": b"X = 1\n"})
    folder = Folder("gs://t5x-harness-jobs", TARGET.project)
    assert list(folder.names()) == [("stage/gin/run.gin", 6)]
    [job] = vertex.jobs()
    text = str(job.resource)
    assert "token" not in text
    assert "credentials" not in text.lower()


def test_a_job_that_the_service_would_refuse_is_not_sent(jobs: PromotedJobs, vertex: FakeVertex) -> None:
    wrong = dataclasses.replace(SLEEP, machine=Machine("cloud-tpu", "TPU_V3", 5), labels={SPEC_LABEL: "Upper"})
    with pytest.raises(JobRefused) as caught:
        send(jobs, wrong)
    first, *violations = str(caught.value).splitlines()
    assert first == "Vertex AI would refuse this job:"
    assert [line.partition(": ")[0].strip() for line in violations] == [
        "custom_job.labels",
        "job_spec.worker_pool_specs[0].machine_spec.accelerator_count",
    ]
    assert not [call for call in vertex.requests if "CreateCustomJob" in call.method]


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Machine("cloud-tpu", "TPU_V3", 5), "Vertex AI would refuse this job:"),
        (Machine.of_slice("v3-512"), "v3-512: 256 chips x at most 10 min = "),
    ],
)
def test_a_dry_run_prints_and_refuses_what_would_not_be_sent(machine: Machine, message: str) -> None:
    shown: list[str] = []
    jobs = PromotedJobs(dataclasses.replace(SETTINGS, dry_run=True), shown.append)
    with pytest.raises((ChipHoursError, JobRefused), match=f"^{re.escape(message)}"):
        jobs.send(dataclasses.replace(SLEEP, machine=machine), {})
    assert [text.partition(":")[0] for text in shown] == ["sleep-1"]


def test_a_dry_run_shows_no_secret() -> None:
    shown: list[str] = []
    jobs = PromotedJobs(dataclasses.replace(SETTINGS, dry_run=True), shown.append)
    job = dataclasses.replace(
        SLEEP, env={"DB_PASSWORD": "correcthorse", "SIZE": "77"}, args=("--api_key=s3cretS3cretS3cret",)
    )
    with pytest.raises(JobNotSent):
        jobs.send(job, {})
    assert not re.search("correcthorse|s3cret", *shown)
    for kept in ("DB_PASSWORD", '"***"', "--api_key=***", '"77"'):
        assert kept in shown[0]
    assert job.to_pb().job_spec.worker_pool_specs[0].container_spec.env[0].value == "correcthorse"


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"labels": {"Team": "x"}}, "Vertex AI would refuse this job:\n"),
        ({"timeout": 3600 * 24}, "4 chips x at most 24 h = 96 chip-hours"),
        ({"machine": Machine("cloud-tpu", "TPU_V3", 7)}, "Vertex AI would refuse this job:\n"),
        ({"machine": Machine("cloud-tpu", "TPU_V33", 8)}, "TPU_V33"),
    ],
)
def test_an_order_is_judged_before_anything_is_run_for_it(order: dict[str, Any], message: str) -> None:
    jobs = PromotedJobs(SETTINGS, lambda text: None)
    good = JobOrder("test_it", TARGET, Machine.of_slice("v3-8"), timeout=600)
    jobs.check(good)
    with pytest.raises(ResourcesError, match=re.escape(message)):
        jobs.check(dataclasses.replace(good, **order))


SECOND = dataclasses.replace(SLEEP, name="second-1", labels={SPEC_LABEL: "second"})
POINTS = {
    "looking for the same job": (jobs_module, "running_with_label"),
    "making the bucket": (Folder, "create_bucket"),
    "staging": (Folder, "put"),
    "sending": (launching_module, "send"),
    "looking at the job": (SubmittedJob, "look"),
    "reading the log": (LogReader, "new_lines"),
}


def raised() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupt_once(
    monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], interrupt: Callable[[], None], *, after: bool
) -> None:
    """Interrupts the next call of a function, before or after its work."""
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
    jobs.send(SLEEP, {})
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
    first, second = jobs.send(SLEEP, {}).submitted, jobs.send(SECOND, {}).submitted
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
    jobs.send(SLEEP, {})
    with pytest.raises(KeyboardInterrupt) as seen:
        raised()
    jobs.raise_pending_interrupt(seen.value)
    jobs.raise_pending_interrupt(None)
    dropped()
    with pytest.raises(KeyboardInterrupt):
        jobs.raise_pending_interrupt(None)
