"""The fixtures leave nothing for the next test, count faults, and name what is missing."""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex_admin import EmulatorError, FakeVertex

CONFTEST = """
import pytest
from t5x_harness.google.vertex.settings import VertexOptions

@pytest.fixture(scope="session")
def vertex_options():
    return VertexOptions(images={"*": ""})
"""

JOB = """
import json, os, pathlib, urllib.request
import pytest

PID = pathlib.Path("pid")

def submit(vertex, name, *command):
    token = (vertex._session.endpoints.folder / "token").read_text()
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1,
            "containerSpec": {"imageUri": "gcr.io/p/i", "command": list(command)}}
    body = json.dumps({"displayName": name, "jobSpec": {"workerPoolSpecs": [pool]}}).encode()
    request = urllib.request.Request(f"{vertex.endpoint}/v1/{vertex.parent}/customJobs", body,
                                     {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.load(answer)["name"]
"""


def test_jobs_logs_and_requests_of_a_test_are_gone_with_it(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        JOB
        + """
def test_it(vertex):
    name = submit(vertex, "first", "echo", "hello", "there")
    job = vertex.wait("first")
    assert (job.name, job.state, job.error, job.has_ended) == (name, "JOB_STATE_SUCCEEDED", "", True)
    assert job.resource["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["command"] == ["echo", "hello", "there"]
    assert "hello there" in vertex.logs("first")
    submit(vertex, "second", "sh", "-c", "echo sorry >&2; exit 3")
    assert vertex.wait("second").error.startswith("The replica workerpool0-0 exited with a non-zero status of 3.")
    assert "sorry" in vertex.logs(vertex.job("second").name)
    assert [job.display_name for job in vertex.jobs()] == ["second", "first"]
    assert [job.display_name for job in vertex.jobs('state="JOB_STATE_FAILED"')] == ["second"]
    assert [(call.method, call.transport, call.code) for call in vertex.requests] == [
        ("JobService.CreateCustomJob", "rest", "OK")] * 2

def test_nothing_is_left(vertex):
    assert (vertex.jobs(), vertex.requests) == ([], [])

def test_a_job_that_still_runs(vertex):
    submit(vertex, "long", "sh", "-c", f"echo $$ > {PID.absolute()}; echo begun; exec sleep 600")
    vertex.wait("long", {"JOB_STATE_RUNNING"})
    while "begun" not in vertex.logs("long"):
        pass

def test_it_has_ended_with_its_test(vertex):
    assert not pathlib.Path("/proc", PID.read_text().strip()).exists()
"""
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=4)


def test_an_unmet_fault_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_unmet(vertex):
            vertex.fail("JobService.GetCustomJob", "UNAVAILABLE", times=2)
            vertex.preempt("train*", seconds=3)
            vertex.stockout(optional=True)

        def test_after_it(vertex):
            assert vertex.unmet() == []
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "vertex.fail('JobService.GetCustomJob', code='UNAVAILABLE', times=2) was not hit (requests: none)",
            "vertex.preempt('train*', seconds=3) was not hit (requests: none)",
            "optional=True allows that",
        ]
    )


@pytest.mark.journey
def test_what_is_set_in_the_sdk_is_gone_after_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os
        from google.cloud import aiplatform

        def test_one(vertex_experiment, vertex_sdk):
            vertex_sdk.start_run("run")
            vertex_sdk.log_params({"a": 1})
            assert vertex_sdk.get_experiment_df()["param.a"].tolist() == [1]

        def test_two(vertex_sdk, vertex):
            assert vertex_sdk is aiplatform
            assert vertex_sdk.Experiment.list() == [] == vertex_sdk.Tensorboard.list()
            config = vertex_sdk.initializer.global_config
            assert (config.project, config.location) == (vertex.project, vertex.location)
            assert config.staging_bucket.startswith("gs://t5x-harness-")

        def test_three(vertex_tensorboard, vertex_sdk):
            assert [board.display_name for board in vertex_sdk.Tensorboard.list()] == ["t5x-harness"]

        def test_four():
            assert aiplatform.initializer.global_config._project is None
            assert "T5X_HARNESS_GCS_ROOT" not in os.environ
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=4)


def test_the_handle_names_what_there_is(fake_gcs_server: EmulatedCloud) -> None:
    vertex = FakeVertex(fake_gcs_server)
    with pytest.raises(EmulatorError, match=r"^no job is called 'train'; jobs: none$"):
        vertex.job("train")
    with pytest.raises(EmulatorError, match=r"^Invalid filter 'x': an operator "):
        vertex.jobs("x")
    with pytest.raises(ValueError, match="times=0: a fault happens at least once, or always with None"):
        vertex.fail("*", times=0)
    with pytest.raises(ValueError, match="code='UNAVAIL' is not one of CANCELLED, UNKNOWN, INVALID_ARGUMENT, "):
        vertex.fail("*", "UNAVAIL")


def test_the_handle_is_for_those_with_the_token(fake_gcs_server: EmulatedCloud, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("another")
    session: Any = types.SimpleNamespace(endpoints=dataclasses.replace(fake_gcs_server.endpoints, folder=tmp_path))
    vertex = FakeVertex(session)
    for ask in (vertex.reset, vertex.unmet, vertex.jobs, lambda: vertex.fail("*")):
        with pytest.raises(EmulatorError):
            ask()
