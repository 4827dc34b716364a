"""Who runs a job, and what is left of it when its server ends, however it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from job_service import PARENT, processes_of, until

from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.state import StateStore, open_store

HERE = Path(__file__).parent
# A child, one in a session of its own, and one that is nobody's child any more; all say that they are there.
FAMILY = "sleep 1000 & setsid sleep 1001 & (setsid sleep 1002 &) ; echo ready; wait"


@pytest.fixture
def state() -> Iterator[StateStore]:
    """A state that other processes reach."""
    pytest.importorskip("fakeredis", reason="needs the extra vertex")
    store = open_store("fakeredis:")
    yield store
    store.close()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts servers that run a job for each script; the jobs' names are the first lines that they print."""
    servers: list[subprocess.Popen[str]] = []

    def start(url: str, *scripts: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        words = [sys.executable, str(HERE / "serving_jobs.py"), str(tmp_path / f"other-{len(servers)}"), url, *scripts]
        environment = {**os.environ, "PYTHONPATH": path}
        servers.append(
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
        return servers[-1]

    yield start
    for server in servers:
        with server:
            server.kill()
    until(lambda: processes_of(tmp_path), lambda left: not left)


def family_in(folder: Path) -> list[int]:
    """The processes of a job that has started its whole family."""
    return until(lambda: processes_of(folder), lambda found: len(found) >= 4)  # type: ignore[no-any-return]


def test_a_server_that_is_told_to_end_takes_all_processes_along(
    start_server: Callable[..., Any], tmp_path: Path
) -> None:
    server = start_server("memory:", FAMILY)
    assert server.stdout.readline()
    family_in(tmp_path)
    server.send_signal(signal.SIGTERM)
    server.wait()
    until(lambda: processes_of(tmp_path), lambda left: not left)


def test_a_server_that_ends_in_order_leaves_nothing_and_says_so(
    make_service: Callable[..., Any], start_server: Callable[..., Any], state: StateStore, tmp_path: Path
) -> None:
    server = start_server(state.url, FAMILY)
    name = server.stdout.readline().strip()
    family_in(tmp_path)
    server.stdin.close()
    server.wait()
    assert not processes_of(tmp_path)
    job = make_service(open_store(state.url)).get(SimpleNamespace(name=name))
    assert job.state == JobState.FAILED
    assert job.error.message.endswith(" has ended, and the job's processes with it.")


def test_two_servers_tell_the_same_jobs_and_either_cancels_them(
    make_service: Callable[..., Any], start_server: Callable[..., Any], state: StateStore
) -> None:
    name = start_server(state.url, "echo ran there; sleep 1000").stdout.readline().strip()
    service = make_service(open_store(state.url))
    job = service.in_state(SimpleNamespace(name=name), JobState.RUNNING)
    service.until_said(job, "ran there")
    assert [each.name for each in service.ask("ListCustomJobs", parent=PARENT).custom_jobs] == [name]
    assert not processes_of(service.api.services.settings.folder), "only its own server runs it"
    service.cancel(job)
    job = service.ended(job)
    assert (job.state, job.error.message) == (JobState.CANCELLED, "CANCELED")


def test_a_killed_server_takes_all_processes_along_and_its_jobs_are_failed_by_the_next_that_looks(
    make_service: Callable[..., Any], start_server: Callable[..., Any], state: StateStore, tmp_path: Path
) -> None:
    server = start_server(state.url, "sleep 1000", FAMILY)
    names = [server.stdout.readline().strip() for _ in range(2)]
    service = make_service(open_store(state.url))
    first, second = (service.in_state(SimpleNamespace(name=name), JobState.RUNNING) for name in names)
    until(lambda: processes_of(tmp_path), lambda found: len(found) >= 5)
    server.kill()
    server.wait()
    seen = service.get(first)
    listed = {each.name: each for each in service.ask("ListCustomJobs", parent=PARENT).custom_jobs}
    for job in (seen, listed[second.name]):
        assert job.state == JobState.FAILED
        assert job.error.message.startswith(f"t5x-harness: the server that ran this job, process {server.pid} on ")
        assert job.error.message.endswith(" has ended, and the job's processes with it.")
        assert job.HasField("end_time")
    until(lambda: processes_of(tmp_path), lambda left: not left)


def test_a_job_ends_with_a_state_that_is_gone(
    make_service: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fakeredis", reason="needs the extra vertex")
    server = open_store("fakeredis:")
    service = make_service(open_store(server.url))
    service.until_said(service.shell("echo ready; sleep 1; echo more; sleep 1000"), "ready")
    server.close()
    until(lambda: processes_of(tmp_path), lambda left: not left)
    assert "Error" in capfd.readouterr().err, "the one who runs the server is told"
