"""A JobService in this process, and jobs whose processes are small shell and Python programs.

As a program, it is a server of jobs that tests can kill: job_service.py FOLDER STATE_URL SCRIPT... runs a job for each
shell script, prints the names of the jobs, and then does nothing until it is ended.
"""

import contextlib
import io
import os
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from api_calls import calls_to
from google.cloud.aiplatform_v1 import types

from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.launching import Attempt
from t5x_harness.google.vertex.jobs.logs import read_lines
from t5x_harness.google.vertex.settings import VertexOptions, VertexSettings
from t5x_harness.google.vertex.state import StateStore, open_store
from t5x_harness.google.vertex.wire.api import Api
from t5x_harness.google.vertex.wire.errors import ApiError
from t5x_harness.vertex.cloud import PROGRAMS

PARENT = "projects/p/locations/us-central1"
IMAGE = "gcr.io/p/plain:1"
# In seconds, long enough for a machine that is busy with other tests. Nothing waits that long unless it fails.
PATIENCE = 60.0


def read_entries(state: StateStore, name: str) -> list[dict[str, Any]]:
    """Returns a job's log as LogEntry objects in JSON form, oldest first."""
    return [line.entry() for line in read_lines(state, name)]


class Service:
    """JobService as a client uses it, except for the transport.

    Args:
      folder: the folder for all files.
      state: the state; in memory by default.
      options: options of :class:`VertexOptions`.
    """

    def __init__(
        self,
        folder: Path,
        state: StateStore | None = None,
        **options: Any,
    ) -> None:
        chosen = VertexOptions(
            images=MappingProxyType({"gcr.io/p/plain*": ""}),
            **{"pending_seconds": 0.0, "programs": PROGRAMS, **options},
        )
        settings = VertexSettings(folder / "root", folder / "jobs", MappingProxyType({}), chosen)
        self.api = Api(settings, state or open_store("memory:"))

    def ask(self, method: str, **fields: Any) -> Any:
        """Calls a method of JobService with the fields of its request."""
        return calls_to(self.api)(f"JobService.{method}", **fields)

    def refused(self, method: str, **fields: Any) -> tuple[str, str]:
        """Returns the code and the message of a call's error."""
        with pytest.raises(ApiError) as caught:
            self.ask(method, **fields)
        return caught.value.code.value, caught.value.message

    def create(self, spec: Any, name: str = "job") -> Any:
        """Starts a custom job with a spec, and returns the job."""
        return self.ask("CreateCustomJob", parent=PARENT, custom_job={"display_name": name, "job_spec": spec})

    def tune(self, trial_spec: Any, **fields: Any) -> Any:
        """Starts a tuning job; see :func:`tuning_job`."""
        job = tuning_job(trial_spec, **fields)
        return self.ask("CreateHyperparameterTuningJob", parent=PARENT, hyperparameter_tuning_job=job)

    def run(self, *words: str, **spec: Any) -> Any:
        """Starts a job of one replica that runs a command."""
        return self.create({"worker_pool_specs": [pool(*words)], **spec})

    def shell(self, script: str, **spec: Any) -> Any:
        """Starts a job of one replica that runs a shell script."""
        return self.run("sh", "-c", script, **spec)

    def get(self, job: Any) -> Any:
        """Returns a job's current message."""
        kind = "HyperparameterTuningJob" if "hyperparameterTuningJobs" in job.name else "CustomJob"
        return self.ask(f"Get{kind}", name=job.name)

    def until(self, job: Any, holds: Callable[[Any], bool]) -> Any:
        """Returns the job as soon as it satisfies a condition."""
        return until(lambda: self.get(job), holds)

    def in_state(self, job: Any, state: JobState) -> Any:
        """Returns the job as soon as it is in a state."""
        return self.until(job, lambda job: job.state == state)

    def ended(self, job: Any) -> Any:
        """Returns the job once it has ended."""
        return self.until(job, lambda job: JobState(job.state).is_final)

    def cancel(self, job: Any) -> None:
        """Cancels a custom job."""
        self.ask("CancelCustomJob", name=job.name)

    def said(self, job: Any, task: str = "workerpool0-0") -> list[str]:
        """Returns the lines that a replica wrote."""
        entries = read_entries(self.api.services.state, job.name)
        return [e.get("textPayload", "") for e in entries if e["resource"]["labels"]["task_name"] == task]

    def until_said(self, job: Any, text: str) -> None:
        """Waits until a replica has written a line."""
        until(lambda: self.said(job), lambda lines: text in lines)


def pool(
    *words: str, replicas: int = 1, image: str = IMAGE, env: Mapping[str, str] = MappingProxyType({}), **machine: Any
) -> dict[str, Any]:
    """Returns a worker pool whose containers run a command with variables."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {
        "replica_count": replicas,
        "machine_spec": machine or {"machine_type": "n1-standard-4"},
        "container_spec": {"image_uri": image, "command": words[:1], "args": words[1:], "env": variables},
    }


def tar(path: Path, files: Mapping[str, bytes], *others: tarfile.TarInfo) -> Path:
    """Writes an archive of files, and of other entries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
        for entry in others:
            archive.addfile(entry)
    return path


def spec_of(**fields: Any) -> Any:
    """Returns a spec as the service's message."""
    return types.CustomJobSpec.pb(types.CustomJobSpec(**fields))


def attempt(settings: VertexSettings, *pools: dict[str, Any]) -> Attempt:
    """Returns an attempt at a job that was never started."""
    return Attempt("projects/1/locations/europe-west4/customJobs/2", spec_of(worker_pool_specs=pools), settings)


def tuning_job(trial_spec: Any, **fields: Any) -> dict[str, Any]:
    """Returns a tuning job of one trial, with one metric and one parameter, changed by fields of the job."""
    numbers = {"parameter_id": "n", "integer_value_spec": {"min_value": 1, "max_value": 4}}
    study = {
        "metrics": [{"metric_id": "loss", "goal": "MINIMIZE"}],
        "parameters": [numbers],
        "algorithm": "GRID_SEARCH",
    }
    return {
        "display_name": "tuning",
        "study_spec": {**study, **fields.pop("study_spec", {})},
        "trial_job_spec": trial_spec,
        **{"max_trial_count": 1, "parallel_trial_count": 1, **fields},
    }


def until(look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Returns the result of ``look`` as soon as it satisfies a condition."""
    deadline = time.monotonic() + PATIENCE
    while not holds(seen := look()):
        assert time.monotonic() < deadline, f"still {seen}"
        time.sleep(0.01)
    return seen


def processes_of(folder: Path) -> list[int]:
    """Returns the pids of processes whose working folder is this folder or below it."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd").startswith(str(folder)):
                found.append(int(entry))
    return found


if __name__ == "__main__":
    serving = Service(Path(sys.argv[1]), open_store(sys.argv[2]))
    for each in sys.argv[3:]:
        print(serving.shell(each).name, flush=True)
    sys.stdin.read()
    serving.api.close()
