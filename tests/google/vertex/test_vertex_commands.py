"""``exec`` and ``serve`` with the options for Vertex AI."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from t5x_harness.commands import serve
from t5x_harness.commands.google_arguments import options_of, project_of
from t5x_harness.commands.main import main

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
    ("words", "message"),
    [
        (
            ("exec", "--slice=none", "--vertex-state=nowhere:", "--", "true"),
            "'nowhere:' is not a state: use memory:, fakeredis: or redis://HOST:PORT/DB",
        ),
        (
            ("serve", "--vertex-state=nowhere:"),
            "'nowhere:' is not a state: use memory:, fakeredis: or redis://HOST:PORT/DB",
        ),
    ],
)
def test_what_cannot_be_had_is_said(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = _run(*words, folder=tmp_path)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("serve", "--vertex-image=nothing"),
            "argument --vertex-image: a glob and a command with = between them, not 'nothing'",
        ),
        (
            ("exec", "--vertex-pending=soon", "--", "true"),
            "argument --vertex-pending: a number of seconds of at least 0, not 'soon'",
        ),
        (
            ("serve", "--vertex-fault=crash:train"),
            "argument --vertex-fault: 'crash:train': there is no fault 'crash'; there are fail, stall, preempt",
        ),
    ],
)
def test_an_option_that_means_nothing_is_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_what_serve_is_told_of_stand_ins_reaches_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    chosen = parser.parse_args(["--standins=missing"])
    given = options_of(chosen, project_of(chosen)).job_environment
    start = {"T5X_HARNESS_START": "t5x_harness.execute.program_setup:install"}
    assert given == {**start, "T5X_HARNESS_STANDINS": str(tmp_path), "T5X_HARNESS_SHRINK": "0"}
    chosen = parser.parse_args(["--shrink"])
    given = options_of(chosen, shrink=chosen.shrink).job_environment
    assert given == {**start, "T5X_HARNESS_STANDINS": "", "T5X_HARNESS_SHRINK": "1"}
    chosen = parser.parse_args([])
    assert options_of(chosen, project_of(chosen)).job_environment == {}
