"""The terminal's output while a promoted run's job is at work."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.vertex.cloud import GoogleSession

TEST = """
import pytest

@pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8)
def test_training(t5x_run):
    t5x_run("sums.gin")
"""
# Replaces T5X: prints lines of its train loop, and continues once a file exists.
JOB = """
import pathlib, sys, time
print("Starting main loop over steps 10000-10004", flush=True)
print("I1121 21:26:14.0 12 logging_writer.py:48] [10002] collection=train loss=2.5", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
sys.exit(5)
"""


@pytest.mark.journey
@pytest.mark.parametrize("options", [[], ["-s"]], ids=["captured", "streamed"])
def test_stage_step_and_state_of_the_job_and_with_s_its_log(tmp_path: Path, imported: None, options: list[str]) -> None:
    project = tmp_path / "project"
    shutil.copytree(CONFIGS / "models", project / "models")
    shutil.copy(CONFIGS / "finetune_sums.gin", project / "sums.gin")
    (project / "test_training.py").write_text(TEST)
    (tmp_path / "job.py").write_text(JOB)
    images = {"*": f"{sys.executable} {tmp_path / 'job.py'} {tmp_path / 'go'}"}
    command = [sys.executable, "-m", "pytest", "-m", "tpu", "--t5x-vertex=emulated", "--t5x-runtime=embedded", *options]
    controller, terminal = pty.openpty()
    with GoogleSession(vertex=VertexOptions(images=images)) as session:
        environment = {**os.environ, **session.environment(), "TERM": "xterm", "COLUMNS": "200"}
        process = subprocess.Popen(
            [*command, f"--basetemp={tmp_path / 'base'}", "-p", "no:cacheprovider"],
            stdin=terminal, stdout=terminal, stderr=terminal, env=environment, cwd=project,
        )  # fmt: skip
        try:
            os.close(terminal)
            shown = _until(controller, b"[train step 10002/10004 job running]")
            (tmp_path / "go").touch()
            shown += _to_the_end(controller)
            assert process.wait(60) == pytest.ExitCode.TESTS_FAILED
        finally:
            process.kill()
            process.wait()
            os.close(controller)
    text = shown.decode()
    assert "the job test-training-" in text
    assert re.search(r"customJobs/\d+\s+of\s+the\s+emulated\s+Vertex\s+AI", text)
    before_the_end, _, _ = text.partition("FAILURES")
    said = "workerpool0-0: Starting main loop over steps 10000-10004"
    assert (said in before_the_end) is bool(options)


def _until(terminal: int, text: bytes) -> bytes:
    """Returns the terminal's output up to and including a text."""
    shown = b""
    while text not in shown:
        assert select.select([terminal], [], [], 240)[0], shown
        more = _read(terminal)
        assert more, shown
        shown += more
    return shown


def _to_the_end(terminal: int) -> bytes:
    shown = b""
    while more := _read(terminal):
        shown += more
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the process at the other end has exited
        return b""
