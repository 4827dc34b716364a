"""Runs in experiments end with the jobs that Ctrl-C cancels, not only when somebody attaches to the jobs."""

import argparse
import contextlib
import dataclasses
import io
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from t5x_harness.buckets.folders import Folder
from t5x_harness.commands.submit_output import PrintedBatch, SubmitOutput
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.promotion.jobs import PromotedJobs
from t5x_harness.promotion.settings import PromotionSettings
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.launching import LaunchedJob
from t5x_harness.vertex.target import EMULATED, VertexTarget
from t5x_harness.vertex.tracking import TrackedRun

pytest.importorskip("google.cloud.aiplatform")

TARGET = VertexTarget(**{**EMULATED, "image": "docker.pkg.dev/p/stand-in/image:1"}, experiment="my-experiment")
RUNS = "JOB_STATE_RUNNING"


class Terminal(SubmitOutput):
    """Records its lines, and interrupts the process once for each given text, as soon as a line contains it."""

    def __init__(self, *interrupted_at: str) -> None:
        super().__init__(argparse.Namespace(output=None, format="text", verbose=0, dry_run=False), io.StringIO())
        self.said: list[str] = []
        self._interrupted_at = list(interrupted_at)

    def say(self, text: str) -> None:
        self.said.append(text.removeprefix("t5x-harness submit: "))
        if self._interrupted_at and self._interrupted_at[0] in text:
            del self._interrupted_at[0]
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def place(vertex: FakeVertex) -> Iterator[None]:
    """A bucket for jobs, and the usual handling of Ctrl-C."""
    Folder(f"gs://{TARGET.bucket}", vertex.project).create_bucket(TARGET.location)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def job(tmp_path: Path) -> T5XJob:
    return _job(tmp_path)


def _job(folder: Path, name: str = "first") -> T5XJob:
    (folder / "run.gin").write_text("STAND_IN_SECONDS = 600\n")
    bindings = [f"NAME = '{name}'", "STAND_IN_SECONDS = 600"]
    return T5XJob.from_gin(
        "run.gin", run_mode="train", machine="v3-8", target=TARGET, bindings=bindings, name=name, cwd=str(folder)
    )


def _fly(output: Terminal, *jobs: T5XJob) -> None:
    """Sends and follows jobs until the expected Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt), PrintedBatch(output, waits=True) as batch:
        for job in jobs:
            batch.launch(job, duplicate=False)
        batch.finish()
        pytest.fail("Ctrl-C did not come")


def _states(job: T5XJob) -> list[str]:
    """Returns the states of the job's run and of the executions in it."""
    from google.cloud import aiplatform

    run = aiplatform.ExperimentRun(
        job.container.name, experiment="my-experiment", project=TARGET.project, location=TARGET.location
    )
    return [run.get_state(), *(execution.state.name for execution in run.get_executions())]


def test_the_run_of_a_cancelled_job_ends_as_cancelled(vertex: FakeVertex, job: T5XJob) -> None:
    output = Terminal(RUNS)
    _fly(output, job)
    [there] = vertex.jobs()
    assert output.said[-2:] == [
        f"cancelled: {there.name}",
        f"the run {job.container.name} of the experiment my-experiment has ended as cancelled",
    ]
    assert _states(job) == ["CANCELLED", "CANCELLED"]
    assert vertex.wait(there.name).state == "JOB_STATE_CANCELLED"


def test_all_jobs_are_cancelled_before_any_run_is_ended(tmp_path: Path) -> None:
    jobs = [_job(tmp_path), _job(tmp_path, "second")]
    output = Terminal(RUNS)
    _fly(output, *jobs)
    assert [line.partition(" ")[0] for line in output.said[-4:]] == ["cancelled:", "cancelled:", "the", "the"]
    assert [_states(job) for job in jobs] == [["CANCELLED", "CANCELLED"]] * 2


def test_a_second_ctrl_c_leaves_the_run_and_says_who_completes_it(vertex: FakeVertex, job: T5XJob) -> None:
    output = Terminal(RUNS, "cancelled: ")
    _fly(output, job)
    [there] = vertex.jobs()
    assert "Ctrl-C cut short the cancelling of" in output.said[-1]  # the service got the request, but we got no answer
    assert _states(job) == ["RUNNING", "RUNNING"]

    attached = LaunchedJob.attach(there.name.rpartition("/")[2], TARGET)
    attached.follow(seconds=120)
    assert _states(job) == ["CANCELLED", "CANCELLED"]


def test_ctrl_c_while_a_run_is_ended_leaves_that_and_the_next_ones(
    vertex: FakeVertex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [_job(tmp_path), _job(tmp_path, "second")]
    monkeypatch.setattr(TrackedRun, "end", lambda *given: signal.raise_signal(signal.SIGINT))
    output = Terminal(RUNS)
    _fly(output, *jobs)
    ids = [line.rpartition("/")[2] for line in output.said[-4:-2]]
    assert output.said[-2:] == [
        f"Ctrl-C left the run of the experiment my-experiment for {there} as it was: t5x-harness submit "
        f"--attach={number} completes it"
        for number in ids
        for there in [next(job.name for job in vertex.jobs() if job.name.endswith(number))]
    ]
    assert {vertex.wait(job.name).state for job in vertex.jobs()} == {"JOB_STATE_CANCELLED"}


def test_a_run_whose_making_was_interrupted_ends_too(job: T5XJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrackedRun, "_link", lambda *given: signal.raise_signal(signal.SIGINT))
    output = Terminal()
    _fly(output, job)
    assert output.said[-1].endswith("of the experiment my-experiment has ended as cancelled")
    assert _states(job) == ["CANCELLED"]


def test_a_run_that_cannot_be_ended_is_told(vertex: FakeVertex, job: T5XJob) -> None:
    output = Terminal(RUNS)
    vertex.fail("MetadataService.UpdateExecution", "PERMISSION_DENIED", message="not yours")
    _fly(output, job)
    [there] = vertex.jobs()
    number = there.name.rpartition("/")[2]
    assert output.said[-1].startswith(f"the run of the experiment my-experiment for {there.name} is not completed: ")
    assert "not yours" in output.said[-1]
    assert output.said[-1].endswith(f" t5x-harness submit --attach={number} completes it")


def test_the_runs_of_a_sessions_promoted_jobs_end_too(vertex: FakeVertex, job: T5XJob) -> None:
    jobs = PromotedJobs(PromotionSettings("emulated", parallel=2, max_chip_hours=32), lambda text: None)
    jobs.send(job.container, {job.stage: job.staged_files}, job)
    [there] = vertex.jobs()
    cancelled, ended = jobs.close()
    assert cancelled.startswith(f"cancelled the job {there.name}, which had not ended: ")
    assert ended == f"the run {job.container.name} of the experiment my-experiment has ended as cancelled"
    assert _states(job) == ["CANCELLED", "CANCELLED"]


def test_a_run_has_the_end_of_its_job_s_name_if_the_whole_is_too_long(tmp_path: Path) -> None:
    target = dataclasses.replace(TARGET, experiment="an-experiment-" * 6 + "of-98-letters0")
    job = dataclasses.replace(_job(tmp_path, "a-name-" * 9), target=target)
    launched = LaunchedJob.launch(job)
    assert (launched.notes, launched.tracked and launched.tracked.name) == ((), job.stamp)
    launched.cancel()
