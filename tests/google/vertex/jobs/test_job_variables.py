"""The variables that a job's containers have, and references to them in arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from google.cloud import aiplatform_v1 as vertex
from job_service import pool

from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.replicas import (
    JobPlace,
    Trial,
    Unit,
    cluster_variables,
    expand,
    job_variables,
    pools_of,
    trial_variables,
)

PLACE = JobPlace.of("projects/12/locations/us-central1/customJobs/34")
CONTEXT = "projects/12/locations/us-central1/metadataStores/default/contexts"


def spec_of(**fields: Any) -> Any:
    return vertex.CustomJobSpec.pb(vertex.CustomJobSpec(**fields))


def test_a_job_knows_its_place_and_its_output() -> None:
    spec = spec_of(base_output_directory={"output_uri_prefix": "gs://b/out/"}, tensorboard="projects/12/tb")
    assert job_variables(PLACE, spec) == {
        "CLOUD_ML_PROJECT_ID": "12",
        "CLOUD_ML_REGION": "us-central1",
        "CLOUD_ML_JOB_ID": "34",
        "AIP_MODEL_DIR": "gs://b/out/model/",
        "AIP_CHECKPOINT_DIR": "gs://b/out/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": "gs://b/out/logs/",
        "AIP_TENSORBOARD_RESOURCE_NAME": "projects/12/tb",
    }


def test_a_job_knows_its_experiment_and_run() -> None:
    spec = spec_of(experiment=f"{CONTEXT}/exp", experiment_run=f"{CONTEXT}/exp-run-1")
    variables = job_variables(PLACE, spec)
    assert variables["AIP_EXPERIMENT_NAME"] == "exp"
    assert variables["AIP_EXPERIMENT_RUN_NAME"] == "run-1"


def test_a_trial_knows_its_number_and_where_its_metrics_go() -> None:
    assert trial_variables(Trial("3", "job"), Path("/j/output.metrics")) == {
        "CLOUD_ML_TRIAL_ID": "3",
        "CLOUD_ML_HP_METRIC_FILE": "/j/output.metrics",
    }


def test_cluster_spec_and_tf_config_of_several_pools() -> None:
    spec = spec_of(worker_pool_specs=[pool("a"), {}, pool("b", replicas=2), pool("c")])
    addresses = {0: ["h:1"], 2: ["h:2", "h:3"], 3: ["h:4"]}
    variables = cluster_variables(spec, addresses, Unit(2, 1), Trial("7", "job"))
    cluster = json.loads(variables["CLUSTER_SPEC"])
    assert cluster["cluster"] == {"workerpool0": ["h:1"], "workerpool2": ["h:2", "h:3"], "workerpool3": ["h:4"]}
    assert cluster["environment"] == "cloud"
    assert cluster["task"] == {"type": "workerpool2", "index": 1, "trial": "7"}
    assert cluster["job"]["workerPoolSpecs"][0]["containerSpec"]["command"] == ["a"]
    tensorflow = json.loads(variables["TF_CONFIG"])
    assert tensorflow["cluster"] == {"chief": ["h:1"], "ps": ["h:2", "h:3"], "evaluator": ["h:4"]}
    assert tensorflow["task"] == {"type": "ps", "index": 1, "trial": "7"}


def test_empty_pools_have_no_replicas_and_keep_the_numbers_of_others() -> None:
    spec = spec_of(worker_pool_specs=[pool("a"), {}, pool("b", replicas=2)])
    names = [unit.name for each in pools_of(spec, 4) for unit in each.units()]
    assert names == ["workerpool0-0", "workerpool2-0", "workerpool2-1"]


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("--dir=$(DIR)/x", "--dir=gs://b/x"),
        ("$(DIR)$(DIR)", "gs://bgs://b"),
        ("$(OTHER)", "$(OTHER)"),
        ("$$(DIR)", "$(DIR)"),
        ("$DIR ${DIR} $$", "$DIR ${DIR} $$"),
    ],
)
def test_references_in_arguments(word: str, expanded: str) -> None:
    assert expand([word], {"DIR": "gs://b"}) == [expanded]


def test_a_container_has_its_variables_and_not_the_server_s(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    spec = pool("sh", "-c", "env; echo sees $(BOTH)")
    names = {"ONE": "1", "BOTH": "$(ONE) and $(CLOUD_ML_REGION)"}
    spec["container_spec"]["env"] = [{"name": name, "value": value} for name, value in names.items()]
    job = service.ended(service.create({"worker_pool_specs": [spec]}))
    said = service.said(job)
    assert "sees 1 and us-central1" in said
    assert not [line for line in said if "hunter2" in line]
    here = next(line for line in said if line.startswith("HOME="))
    assert here.startswith(f"HOME={service.api.services.settings.folder}{os.sep}")


@pytest.mark.parametrize(("image", "cheaply"), [("gcr.io/p/t5x:1", True), ("gcr.io/p/plain:1", False)])
def test_t5x_compiles_and_prepares_as_cheaply_as_in_runs_here(service: Any, image: str, cheaply: bool) -> None:
    spec = pool(
        "sh",
        "-c",
        "echo flags $XLA_FLAGS, brief $T5X_HARNESS_BRIEF.",
        machine_type="cloud-tpu",
        accelerator_type=7,
        accelerator_count=8,
    )
    spec["container_spec"]["image_uri"] = image
    spec["container_spec"]["env"] = [{"name": "XLA_FLAGS", "value": "--xla_dump_to=there"}]
    job = service.ended(service.create({"worker_pool_specs": [spec]}))
    (said,) = [line for line in service.said(job) if line.startswith("flags ")]
    assert "--xla_dump_to=there" in said
    assert ("--xla_backend_optimization_level=0" in said) is cheaply
    assert said.endswith("brief 1." if cheaply else "brief .")


def test_what_variables_hold_is_in_no_file_of_the_job(service: Any) -> None:
    spec = pool("no-such-program")
    spec["container_spec"]["env"] = [{"name": "TOKEN", "value": "hunter2"}]
    job = service.ended(service.create({"worker_pool_specs": [spec]}))
    assert job.state == JobState.FAILED
    files = [path for path in service.api.services.settings.folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert "hunter2" not in str(job.error) + "".join(service.said(job, "service"))


def test_a_container_sees_the_store_at_gcs(service: Any) -> None:
    bucket = service.api.services.settings.root / "buckets" / "b"
    bucket.mkdir(parents=True)
    (bucket / "in").write_text("from the store")
    job = service.ended(service.shell("cat /gcs/b/in > /gcs/b/out"))
    assert job.state == JobState.SUCCEEDED, service.said(job)
    assert (bucket / "out").read_text() == "from the store"
