"""``exec`` and ``serve`` with the options for Vertex AI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

SUBMIT = """
import time
from google.cloud import aiplatform

aiplatform.init(location="us-central1", staging_bucket="gs://staging")
pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1,
        "container_spec": {"image_uri": "gcr.io/p/trainer:1", "args": ["one", "two"]}}
job = aiplatform.CustomJob(display_name="trainer", worker_pool_specs=[pool])
job.submit()
client = job.api_client
while not (found := client.get_custom_job(name=job.resource_name)).end_time:
    time.sleep(0.02)
print(found.state.name)
"""


def _run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "t5x_harness", *words]
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_exec_runs_jobs_of_an_image_that_a_command_stands_for(tmp_path: Path) -> None:
    image = f'gcr.io/p/trainer*={sys.executable} -c \'import sys; open("{tmp_path}/said", "w").write(str(sys.argv))\''
    done = _run("exec", "--slice=none", "--vertex-image", image, "--", sys.executable, "-c", SUBMIT, folder=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["JOB_STATE_SUCCEEDED"], done.stderr
    assert (tmp_path / "said").read_text() == "['-c', 'one', 'two']"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("exec", "--slice=none", "--vertex-state=nowhere:", "--", "true"),
            "'nowhere:' names no state: memory:, fakeredis: or redis://HOST:PORT/DB",
        ),
        (
            ("serve", "--vertex-state=nowhere:"),
            "'nowhere:' names no state: memory:, fakeredis: or redis://HOST:PORT/DB",
        ),
        (
            ("serve", "--vertex-image=nothing"),
            "argument --vertex-image: a glob and a command with = between them, not 'nothing'",
        ),
    ],
)
def test_what_cannot_be_had_is_said(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = _run(*words, folder=tmp_path)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
