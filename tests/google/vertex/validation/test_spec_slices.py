"""Which slice a machine spec asks for."""

from __future__ import annotations

import types
from typing import Any

import pytest

from t5x_harness.google.vertex.validation.machine_types import (
    chips_of,
    cloud_tpus,
    generation_of,
    machine_types,
    slice_of,
)
from t5x_harness.google.vertex.validation.machines import machine_of_slice
from t5x_harness.slices.slice import get_slice, slice_names


def spec(machine: str, accelerator: Any = "", count: int = 0, topology: str = "") -> Any:
    return types.SimpleNamespace(
        machine_type=machine, accelerator_type=accelerator, accelerator_count=count, tpu_topology=topology
    )


@pytest.mark.parametrize(
    ("machine", "name", "chips"),
    [
        (spec("cloud-tpu", "TPU_V2", 8), "v2-8", 4),
        (spec("cloud-tpu", "TPU_V3", 32), "v3-32", 16),
        (spec("ct5lp-hightpu-1t", topology="1x1"), "v5e-1", 1),
        (spec("ct5lp-hightpu-4t", topology="2x2"), "v5e-4", 4),
        (spec("ct5lp-hightpu-8t", topology="2x4"), "v5e-8", 8),
        (spec("ct5lp-hightpu-4t", topology="2x4"), "v5e-8", 8),
        (spec("ct5lp-hightpu-4t", topology="16x16"), "v5e-256", 256),
        (spec("ct6e-standard-4t", topology="4x4"), "v6e-16", 16),
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
    assert generation_of(spec("cloud-tpu", "TPU_V3", 4)) == "v3"
    assert generation_of(spec("tpu7x-standard-4t")) == "7x"
    assert generation_of(spec("e2-standard-4")) is None


def test_messages_of_the_sdk_are_read_as_well() -> None:
    types_ = pytest.importorskip("google.cloud.aiplatform_v1.types")
    plus = types_.MachineSpec(machine_type="cloud-tpu", accelerator_type="TPU_V3", accelerator_count=32)
    assert slice_of(plus) == slice_of(types_.MachineSpec.pb(plus)) == get_slice("v3-32")


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


def test_what_is_no_slice_has_no_machine() -> None:
    assert machine_of_slice("n1-standard-4") == {}
    assert set(cloud_tpus()) == {"TPU_V2", "TPU_V3"}
