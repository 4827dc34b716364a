"""Accelerator types that the API does not have: found in the document, as no message can hold them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t5x_harness.google.vertex.validation import accelerator_meant, misspelt_accelerators
from t5x_harness.google.vertex.validation.judging import accelerator_types


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("A100_80GIB", "write NVIDIA_A100_80GB"),
        ("NVIDIA_A100_80GIB", "write NVIDIA_A100_80GB"),
        ("a100", "write NVIDIA_TESLA_A100"),
        ("nvidia-tesla-t4", "write NVIDIA_TESLA_T4"),
        ("H100", "write NVIDIA_H100_80GB"),
        ("TPU_v3", "write TPU_V3"),
        ("TPU_V4", "the type is called TPU_V4_POD, and custom training documents no machine for it"),
        (
            "TPU_V5E",
            "TPU v5e is asked for with machine_type ct5lp-hightpu-4t and tpu_topology, without an accelerator type",
        ),
        ("v3-32", "v3-32 is a slice; write machine_type cloud-tpu, accelerator_type TPU_V3, accelerator_count 32"),
        ("v5litepod-16", "v5litepod-16 is a slice; write machine_type ct5lp-hightpu-4t, tpu_topology 4x4"),
        ("v4-8", "v4-8 is a slice, of a size or generation for which custom training documents no machine"),
        ("abacus", ""),
    ],
)
def test_what_was_meant(given: str, meant: str) -> None:
    assert accelerator_meant(given) == meant


def test_they_are_found_in_both_spellings_with_the_parsers_words() -> None:
    document = {
        "displayName": "x",
        "jobSpec": {"workerPoolSpecs": [{"machineSpec": {"acceleratorType": "TPU_V3"}}, {"machineSpec": {}}]},
    }
    assert misspelt_accelerators(document) == ()
    document["jobSpec"]["workerPoolSpecs"][1]["machineSpec"]["acceleratorType"] = "A100_80GIB"  # type: ignore[index]
    (found,) = misspelt_accelerators(document)
    assert found.field == "job_spec.worker_pool_specs[1].machine_spec.accelerator_type"
    assert found.code == "VTX18"
    assert found.message == (
        "Invalid value at 'custom_job.job_spec.worker_pool_specs[1].machine_spec.accelerator_type' "
        '(type.googleapis.com/google.cloud.aiplatform.v1.AcceleratorType), "A100_80GIB": write NVIDIA_A100_80GB'
    )
    snake = {"trial_job_spec": {"worker_pool_specs": [{"machine_spec": {"accelerator_type": "v3-32"}}]}}
    (found,) = misspelt_accelerators(snake, "hyperparameter_tuning_job")
    assert found.code == "VTX02"
    assert found.message.startswith("Invalid value at 'hyperparameter_tuning_job.trial_job_spec.worker_pool_specs[0].")
    assert misspelt_accelerators([{"accelerator_type": 9}]) == (), "a number is parsed, and judged in the message"


def test_the_list_is_the_apis() -> None:
    types = pytest.importorskip("google.cloud.aiplatform_v1.types")
    assert set(accelerator_types()) == {type_.name for type_ in types.AcceleratorType}


def test_a_request_with_one_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    from t5x_harness.google.vertex.wire.api import Api
    from t5x_harness.google.vertex.wire.rest import RestRequest, answer_rest

    machine = {"machineType": "cloud-tpu", "acceleratorType": "v3-32", "acceleratorCount": 32}
    body = {"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"machineSpec": machine, "replicaCount": 1}]}}
    api = Api.local(tmp_path)
    path = "/v1/projects/my-project/locations/us-central1/customJobs"
    try:
        request = RestRequest("POST", path, body=json.dumps(body).encode(), token=api.authority.token)
        answer = answer_rest(api, request)
    finally:
        api.close()
    assert answer.status == 400
    error = json.loads(answer.body)["error"]
    assert error["status"] == "INVALID_ARGUMENT"
    assert error["message"] == (
        "Invalid value at 'custom_job.job_spec.worker_pool_specs[0].machine_spec.accelerator_type' "
        '(type.googleapis.com/google.cloud.aiplatform.v1.AcceleratorType), "v3-32": v3-32 is a slice; write '
        "machine_type cloud-tpu, accelerator_type TPU_V3, accelerator_count 32"
    )
