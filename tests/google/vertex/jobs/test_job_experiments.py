"""Jobs that name an experiment: the service makes a run in it for those that name none."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from google.cloud import aiplatform_v1
from google.protobuf import json_format
from job_service import PARENT

from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.links import CONTEXT

EXPERIMENT = f"{PARENT}/metadataStores/default/contexts/tuning"
SAYS_ITS_RUN = 'echo "$AIP_EXPERIMENT_NAME $AIP_EXPERIMENT_RUN_NAME"'


@pytest.fixture
def experiment(service: Any) -> str:
    """The name of an experiment's context, as the service has it: with the project's number."""
    name: str = service.api.services.projects.with_number(EXPERIMENT)
    store = aiplatform_v1.MetadataStore.pb()()
    service.api.services.resources.create(name.partition("/contexts/")[0], store)
    service.api.services.resources.create(
        name, CONTEXT.message(display_name="tuning", schema_title="system.Experiment")
    )
    return name


def test_a_job_without_a_run_has_one_made_in_its_experiment(service: Any, experiment: str) -> None:
    created = service.shell(SAYS_ITS_RUN, experiment=EXPERIMENT)
    job_id = created.name.rpartition("/")[2]
    assert created.job_spec.experiment_run == f"{experiment}-{job_id}"
    run = service.api.services.resources.get(created.job_spec.experiment_run, CONTEXT.message)
    assert (run.display_name, run.schema_title) == (job_id, "system.ExperimentRun")
    assert json_format.MessageToDict(run.metadata) == {"_params": {}, "_metrics": {}, "_state": "RUNNING"}
    assert list(run.parent_contexts) == [experiment]
    assert links.children(service.api.services, experiment) == {run.name}
    job = service.ended(created)
    assert job.job_spec.experiment_run == run.name
    assert service.said(job) == [f"tuning {job_id}"]


def test_a_job_with_a_run_keeps_it(service: Any, experiment: str) -> None:
    job = service.ended(service.shell(SAYS_ITS_RUN, experiment=EXPERIMENT, experiment_run=f"{EXPERIMENT}-mine"))
    assert job.job_spec.experiment_run == f"{experiment}-mine"
    assert service.said(job) == ["tuning mine"]
    assert links.children(service.api.services, experiment) == set()


def test_an_experiment_that_is_not_there_gets_no_run(service: Any) -> None:
    job = service.ended(service.shell(SAYS_ITS_RUN, experiment=EXPERIMENT))
    assert job.job_spec.experiment_run == ""
    assert service.said(job) == ["tuning "]
