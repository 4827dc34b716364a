"""Whether a job's processes make stand-ins is chosen with the server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("google.cloud.aiplatform_v1")

from google.cloud.aiplatform_v1 import types
from google.protobuf.json_format import ParseDict

from t5x_harness.google.vertex.jobs.launching import Attempt
from t5x_harness.google.vertex.settings import VertexOptions, VertexSettings
from t5x_harness.runtime.import_hooks import BOOTSTRAP_PATH
from t5x_harness.variables import ROOT_VARIABLE, SHRINK_VARIABLE, STANDINS_VARIABLE
from t5x_harness.vertex.cloud import PROGRAMS


@pytest.mark.parametrize(
    ("image", "project", "is_set_up"),
    [
        ("gcr.io/p/t5x:1", "/project", True),
        ("gcr.io/p/t5x:1", "", True),
        ("gcr.io/p/trainer:1", "/project", True),  # its program may use T5X
        ("gcr.io/p/trainer:1", "", False),
    ],
)
def test_a_job_makes_stand_ins_if_the_server_was_started_so(
    image: str, project: str, is_set_up: bool, tmp_path: Path
) -> None:
    images = {"*/trainer*": "python -m trainer.task"}
    chosen = VertexOptions.from_dict(
        VertexOptions(
            programs=PROGRAMS, job_environment={STANDINS_VARIABLE: project} if project else {}, images=images
        ).to_dict()
    )
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": image, "args": ["--run_mode=train"]},
    }
    spec = ParseDict({"workerPoolSpecs": [pool]}, types.CustomJobSpec.pb()())
    settings = VertexSettings(tmp_path / "root", tmp_path / "jobs", options=chosen)
    attempt = Attempt("projects/1/locations/us-central1/customJobs/2", spec, settings)
    [unit] = attempt.units
    environment = attempt.task(unit).environment
    assert environment[ROOT_VARIABLE] == str(tmp_path / "root")
    assert environment.get(STANDINS_VARIABLE, "") == project
    assert (BOOTSTRAP_PATH in environment.get("PYTHONPATH", "").split(os.pathsep)) == is_set_up


@pytest.mark.parametrize("own", ["0", None])
def test_a_jobs_own_variable_wins_over_the_servers(own: str | None, tmp_path: Path) -> None:
    chosen = VertexOptions(programs=PROGRAMS, job_environment={SHRINK_VARIABLE: "1"})
    container = {"imageUri": "gcr.io/p/t5x:1", "args": ["--run_mode=train"]}
    if own is not None:
        container["env"] = [{"name": SHRINK_VARIABLE, "value": own}]
    pool = {
        "machineSpec": {"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 8},
        "replicaCount": 1,
        "containerSpec": container,
    }
    spec = ParseDict({"workerPoolSpecs": [pool]}, types.CustomJobSpec.pb()())
    settings = VertexSettings(tmp_path / "root", tmp_path / "jobs", options=chosen)
    attempt = Attempt("projects/1/locations/us-central1/customJobs/2", spec, settings)
    [unit] = attempt.units
    assert attempt.task(unit).environment[SHRINK_VARIABLE] == (own or "1")
