"""The fixtures leave nothing for the next test, and count faults; ``exec`` and ``serve`` have options for Vertex AI."""

import argparse
import dataclasses
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.commands import serve
from t5x_harness.commands.main import main
from t5x_harness.commands.shells import options_of, project_of
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
import json, os, pathlib
import pytest
from t5x_harness.google.session import ask_server

PID = pathlib.Path("pid")

def submit(vertex, name, *command):
    endpoints = vertex._session.endpoints
    assert vertex.endpoint == endpoints.url
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1,
            "containerSpec": {"imageUri": "gcr.io/p/i", "command": list(command)}}
    body = json.dumps({"displayName": name, "jobSpec": {"workerPoolSpecs": [pool]}}).encode()
    headers = {"Authorization": f"Bearer {(endpoints.folder / 'token').read_text()}"}
    return ask_server(endpoints, "POST", f"/v1/{vertex.parent}/customJobs", body, headers)["name"]
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


SUBMIT = """
import time
from google.cloud import aiplatform as ai

ai.init(location="us-central1", staging_bucket="gs://staging")

def run(name, container):
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": container}
    job = ai.CustomJob(display_name=name, worker_pool_specs=[pool])
    job.submit()
    client, seen = job.api_client, []
    while not (found := client.get_custom_job(name=job.resource_name)).end_time:
        seen += [found.state.name] if found.state.name not in seen else []
        time.sleep(0.02)
    order = ["JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING"]  # a slow poll may miss one
    assert seen and seen == [state for state in order if state in seen], seen
    waited = (found.start_time - found.create_time).total_seconds() >= 0.4
    print("waited:", waited, found.state.name, found.error.code, found.error.message)

run("trainer", {"image_uri": "gcr.io/p/trainer:1", "args": ["one", "two"]})
run("greedy", {"image_uri": "gcr.io/p/x:1", "command": ["sh", "-c", "echo ready; sleep 1000"]})
"""


def _run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "t5x_harness", *words]
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.journey
def test_exec_runs_jobs_of_images_that_commands_stand_for_which_wait_and_meet_faults(tmp_path: Path) -> None:
    image = f'gcr.io/p/trainer*={sys.executable} -c \'import sys; open("{tmp_path}/said", "w").write(str(sys.argv))\''
    images = ["--vertex-image", image, "--vertex-image=*="]
    options = [*images, "--vertex-queued=0.2", "--vertex-pending=0.2", "--vertex-fault=oom:greedy,output=ready"]
    done = _run("exec", "--slice=none", *options, "--", sys.executable, "-c", SUBMIT, folder=tmp_path)
    assert [line for line in done.stdout.splitlines() if line.startswith("waited: ")] == [
        "waited: True JOB_STATE_SUCCEEDED 0 ",
        "waited: True JOB_STATE_FAILED 8 Replicas low on memory: workerpool0. Specify a machine with larger memory and "
        "try again.",
    ], done.stderr
    assert (tmp_path / "said").read_text() == "['-c', 'one', 'two']"


@pytest.mark.parametrize(
    "words", ["exec --slice=none --vertex-state=nowhere: -- true", "serve --vertex-state=nowhere:"]
)
def test_a_state_that_cannot_be_had_is_said(tmp_path: Path, words: str) -> None:
    done = _run(*words.split(), folder=tmp_path)
    assert done.returncode == 2
    assert "argument --vertex-state: memory:, fakeredis: or redis://HOST:PORT/DB, not 'nowhere:'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("serve --vertex-image=nothing", "--vertex-image: a glob and a command with = between them, not 'nothing'"),
        (
            "exec --vertex-pending=soon -- true",
            "--vertex-pending: a number of seconds from 0 to 2147483647, not 'soon'",
        ),
        (
            "serve --vertex-fault=crash:train",
            "--vertex-fault: 'crash:train': there is no fault 'crash'; there are fail, stall, preempt",
        ),
    ],
)
def test_an_option_that_means_nothing_is_refused(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert f"argument {message}" in capsys.readouterr().err


def test_what_serve_is_told_of_stand_ins_reaches_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)

    def given(*words: str) -> Any:
        chosen = parser.parse_args(words)
        return options_of(chosen, project_of(chosen), shrink=chosen.shrink).job_environment

    start = {"T5X_HARNESS_START": "t5x_harness.execute.program_setup:install"}
    missing = {"T5X_HARNESS_STANDINS": str(tmp_path), "T5X_HARNESS_SHRINK": "0"}
    assert given("--standins=missing") == {**start, **missing}
    assert given("--shrink") == {**start, "T5X_HARNESS_STANDINS": "", "T5X_HARNESS_SHRINK": "1"}
    assert given() == {}
