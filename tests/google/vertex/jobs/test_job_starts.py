"""Jobs that cannot be started here fail with the reason, and leave nothing open."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from job_service import PARENT, pool

from t5x_harness.google.vertex.jobs import guarded
from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.guarded import Guarded, Task


def test_a_job_whose_folder_cannot_be_made_fails_and_can_be_deleted(
    service: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    service.api.services.settings.folder.parent.mkdir(parents=True, exist_ok=True)
    service.api.services.settings.folder.write_text("in the way")
    job = service.get(service.shell("true"))
    assert job.state == JobState.FAILED
    assert job.error.message.startswith("t5x-harness: the job cannot be started: [Errno 20] Not a directory: ")
    assert "NotADirectoryError" in capfd.readouterr().err, "the owner of the server sees where"
    service.ask("DeleteCustomJob", name=job.name)
    assert not service.ask("ListCustomJobs", parent=PARENT).custom_jobs


def test_a_job_for_which_there_is_no_thread_fails(
    service: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    before = len(os.listdir("/proc/self/fd"))
    job = service.get(service.shell("true"))
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before
    assert (job.state, job.error.message) == (
        JobState.FAILED,
        "t5x-harness: the job cannot be started: can't start new thread",
    )
    assert "can't start new thread" in capfd.readouterr().err


@pytest.mark.parametrize("first", ["tuning", "trial"])
def test_a_tuning_job_that_cannot_be_started_fails(
    service: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], first: str
) -> None:
    kept = Path.mkdir

    def mkdir(folder: Path, *args: Any, **options: Any) -> None:
        if folder.parent == service.api.services.settings.folder and (first == "tuning" or folder.parent.exists()):
            raise OSError(28, "No space left on device", str(folder))
        kept(folder, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    job = service.ask(
        "CreateHyperparameterTuningJob",
        parent=PARENT,
        hyperparameter_tuning_job={
            "display_name": "study",
            "max_trial_count": 1,
            "parallel_trial_count": 1,
            "study_spec": {
                "metrics": [{"metric_id": "loss", "goal": "MINIMIZE"}],
                "parameters": [{"parameter_id": "x", "double_value_spec": {"min_value": 0, "max_value": 1}}],
            },
            "trial_job_spec": {"worker_pool_specs": [pool("true")]},
        },
    )
    ended = service.ended(job)
    assert ended.state == JobState.FAILED
    assert "t5x-harness: the job cannot be started: [Errno 28] No space left on device" in ended.error.message
    assert "No space left on device" in capfd.readouterr().err


def test_a_process_that_cannot_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def popen(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(guarded.subprocess, "Popen", popen)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="temporarily unavailable"):
        Guarded(Task(("true",), {}, tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
