"""The data of the rules, the slices that machine specs ask for, and accelerator types that the API does not have."""

import json
import re
import string
import types
from typing import Any

import pytest

from t5x_harness import vertex
from t5x_harness.google.vertex import validation
from t5x_harness.google.vertex.validation.checks import CHECKS
from t5x_harness.google.vertex.validation.judging import (
    accelerator_meant,
    accelerator_types,
    misspelt_accelerators,
    service_rules,
)
from t5x_harness.google.vertex.validation.machine_types import (
    chips_of,
    cloud_tpus,
    generation_of,
    machine_types,
    slice_of,
    tpu_regions,
    training_regions,
)
from t5x_harness.google.vertex.validation.machines import machine_of_slice
from t5x_harness.google.vertex.validation.rules import read_table
from t5x_harness.slices.slice import get_slice, slice_names
from t5x_harness.vertex.job_rules import job_rules

RULES = (*service_rules(), *job_rules())


def test_every_rule_has_a_name_of_its_own_and_a_check() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert {rule.check for rule in RULES} >= set(CHECKS.values()), "every check is some rule's"


def test_every_rule_has_a_source_unless_it_is_assumed() -> None:
    for rule in RULES:
        assert (rule.source.url == "") == (rule.confidence == "assumed"), rule.name
        assert rule.confidence in ("observed", "documented", "reported", "assumed")
    tables = read_table(validation.__name__, "machines.toml")
    by_machines = {tables[name]["source"] for name in ("machines", "regions", "training_regions")}
    for package, name, also in ((validation, "rules.toml", by_machines), (vertex, "job_rules.toml", set())):
        table = read_table(package.__name__, name)
        assert {entry["source"] for entry in table["rule"]} | also == set(table["sources"])


def test_messages_are_sentences() -> None:
    for rule in RULES:
        assert list(string.Formatter().parse(rule.message))
        assert rule.message.endswith((".", "({fix})", "TensorBoard")), rule.name


def test_a_long_text_is_read_once_by_each_pattern() -> None:
    """Otherwise, the server could not answer while a pattern starts again at each character of the text."""
    for rule in RULES:
        if form := rule.parameters.get("pattern"):
            for part in ("a", ".", "/", "a.", "a/", ":", "@", "a:1", "projects/a/"):
                re.fullmatch(form, part * 200_000)


def test_the_tables_hold_together() -> None:
    generations = {machine.generation for machine in machine_types().values() if machine.generation}
    generations |= {about.generation for about in cloud_tpus().values()}
    for generation in generations:
        assert set(tpu_regions(generation)) <= set(training_regions())
        assert tpu_regions(generation)
    assert tpu_regions("v4") == ()


def spec(machine: str, accelerator: Any = "", count: int = 0, topology: str = "") -> Any:
    return types.SimpleNamespace(
        machine_type=machine, accelerator_type=accelerator, accelerator_count=count, tpu_topology=topology
    )


@pytest.mark.parametrize(
    ("machine", "name", "chips"),
    [
        (spec("cloud-tpu", "TPU_V3", 32), "v3-32", 16),
        (spec("ct5lp-hightpu-4t", topology="2x4"), "v5e-8", 8),
        (spec("tpu7x-standard-4t", topology="2x2x2"), None, 8),
        (spec("n1-standard-4", "NVIDIA_TESLA_T4", 1), None, 0),
        (spec("e2-standard-4"), None, 0),
        (spec("cloud-tpu", "TPU_V3", 4), None, 0),
        (spec("cloud-tpu", "NVIDIA_L4", 8), None, 0),
        (spec("ct5lp-hightpu-8t", topology="4x4"), None, 0),
        (spec("n1-standard-4", "TPU_V3", 8), None, 0),
        (spec("unheard-of"), None, 0),
    ],
)
def test_the_slice_of_a_machine(machine: Any, name: str | None, chips: int) -> None:
    assert (slice_of(machine), chips_of(machine)) == (name and get_slice(name), chips)


def test_the_generation_is_known_even_where_the_slice_is_none() -> None:
    asked = (spec("cloud-tpu", "TPU_V3", 4), spec("tpu7x-standard-4t"), spec("e2-standard-4"))
    assert [generation_of(each) for each in asked] == ["v3", "7x", None]


def test_messages_of_the_sdk_are_read_as_well() -> None:
    types_ = pytest.importorskip("google.cloud.aiplatform_v1.types")
    plus = types_.MachineSpec(machine_type="cloud-tpu", accelerator_type="TPU_V3", accelerator_count=32)
    assert slice_of(plus) == slice_of(types_.MachineSpec.pb(plus)) == get_slice("v3-32")
    assert set(accelerator_types()) == {type_.name for type_ in types_.AcceleratorType}


def test_every_shape_of_the_machines_is_a_slice_with_those_chips() -> None:
    for machine in machine_types().values():
        for topology in machine.topologies:
            asked = spec(machine.name, topology=topology)
            found = slice_of(asked)
            assert (found is None) == (machine.generation == "7x")
            if found is not None:
                assert found.topology[:2] == tuple(map(int, topology.split("x")))
                assert chips_of(asked) == found.num_chips


def test_what_is_written_for_a_slice_asks_for_it() -> None:
    for name in slice_names():
        fields = machine_of_slice(name)
        assert bool(fields) != name.startswith(("v4", "v5p")), name
        if fields:
            defaults = {"accelerator_type": "", "accelerator_count": 0, "tpu_topology": ""}
            assert slice_of(types.SimpleNamespace(**{**defaults, **fields})) == get_slice(name)


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


def test_a_request_with_one_is_refused_with_what_was_meant(api: Any) -> None:
    from t5x_harness.google.vertex.wire.errors import ApiError
    from t5x_harness.google.vertex.wire.rest import answer_rest, error_answer

    machine = {"machineType": "cloud-tpu", "acceleratorType": "v3-32", "acceleratorCount": 32}
    body = {"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"machineSpec": machine, "replicaCount": 1}]}}
    path = "/v1/projects/my-project/locations/us-central1/customJobs"
    with pytest.raises(ApiError) as refused:
        answer_rest(api, "POST", path, body=json.dumps(body).encode())
    status, answer = error_answer(refused.value)
    assert status == 400
    error = json.loads(answer)["error"]
    assert error["status"] == "INVALID_ARGUMENT"
    assert error["message"] == misspelt_accelerators(body)[0].message
