"""Machines by the names that people use, and what their chips come to."""

from __future__ import annotations

import pytest

from t5x_harness.vertex.machine import ChipHours, ChipHoursError, Machine, MachineError


@pytest.mark.parametrize(
    ("text", "machine", "slice_name", "chips"),
    [
        ("v3-32", Machine("cloud-tpu", "TPU_V3", 32), "v3-32", 16),
        ("v2-8", Machine("cloud-tpu", "TPU_V2", 8), "v2-8", 4),
        ("TPU_V3:32", Machine("cloud-tpu", "TPU_V3", 32), "v3-32", 16),
        ("v5e-16", Machine("ct5lp-hightpu-4t", tpu_topology="4x4"), "v5e-16", 16),
        ("v5e-8", Machine("ct5lp-hightpu-8t", tpu_topology="2x4"), "v5e-8", 8),
        ("v6e:2x2", Machine("ct6e-standard-4t", tpu_topology="2x2"), "v6e-4", 4),
        (
            "machine-type=ct5lp-hightpu-4t,tpu-topology=2x4",
            Machine("ct5lp-hightpu-4t", tpu_topology="2x4"),
            "v5e-8",
            8,
        ),
    ],
)
def test_a_slice_or_its_parts_name_a_machine(text: str, machine: Machine, slice_name: str, chips: int) -> None:
    found = Machine.parse(text)
    assert found == machine
    assert found.is_tpu
    assert found.slice is not None
    assert found.slice.name == slice_name
    assert found.chips == found.slice.num_chips == chips


def test_a_machine_without_a_tpu_has_no_slice() -> None:
    found = Machine.parse("machine-type=n1-standard-8,accelerator-type=NVIDIA_TESLA_V100,accelerator-count=2")
    assert found == Machine("n1-standard-8", "NVIDIA_TESLA_V100", 2)
    assert (found.is_tpu, found.slice, found.chips) == (False, None, 0)


def test_the_message_has_what_the_api_wants() -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    message = Machine.parse("v3-32").to_pb()
    assert message.machine_type == "cloud-tpu"
    assert message.accelerator_type.name == "TPU_V3"
    assert message.accelerator_count == 32
    assert Machine.parse("v5e-16").to_pb().tpu_topology == "4x4"


@pytest.mark.parametrize("text", ["v3-32", "v5e-16", "machine-type=n1-standard-8"])
def test_a_machine_is_read_back_from_its_message(text: str) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    machine = Machine.parse(text)
    assert Machine.of_pb(machine.to_pb()) == machine


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v3-7", "'v3-7' is not a TPU slice: nearest names: v3-8, v3-32, v3-64"),
        ("v4-8", "Vertex AI documents no machine for custom jobs on v4-8"),
        ("TPU_V3:many", "TPU_V3:many: 'many' is not a number of accelerators"),
        ("machine-type=x,type=y", "'type=y' is not a KEY=VALUE with one of the keys machine-type, accelerator-type"),
        ("tpu-topology=2x2", "tpu-topology=2x2: a machine needs a machine-type"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, message: str) -> None:
    with pytest.raises(MachineError) as caught:
        Machine.parse(text)
    assert message in str(caught.value)


def test_an_accelerator_that_the_api_does_not_have_is_refused_with_the_one_that_is_meant() -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    with pytest.raises(MachineError) as caught:
        Machine("a2-ultragpu-1g", "A100_80GIB", 1).to_pb()
    assert str(caught.value) == "there is no accelerator type 'A100_80GIB': write NVIDIA_A100_80GB"


def test_chip_hours_are_chips_until_the_deadline() -> None:
    hours = ChipHours.of(Machine.parse("v3-32"), 4 * 3600)
    assert hours.total == 64
    assert str(hours) == "v3-32: 16 chips x at most 4 h = 64 chip-hours"
    hours.require(64)
    with pytest.raises(ChipHoursError) as caught:
        hours.require(16)
    assert str(caught.value) == (
        "v3-32: 16 chips x at most 4 h = 64 chip-hours: more than the 16 that "
        "--tpu-max-chip-hours (pytest: --t5x-tpu-max-chip-hours) allows. "
        "Give --tpu-max-chip-hours=64, a timeout of at most 1 h, or a smaller slice"
    )


def test_a_limit_that_is_given_as_told_is_enough() -> None:
    hours = ChipHours.of(Machine.parse("v3-8"), 12_345)
    with pytest.raises(ChipHoursError) as caught:
        hours.require(1)
    told = str(caught.value).split("--tpu-max-chip-hours=")[1].split(",")[0]
    hours.require(float(told))


def test_a_machine_without_a_tpu_uses_up_none() -> None:
    hours = ChipHours.of(Machine("n1-standard-8"), 7200)
    hours.require(0.1)
    assert str(hours) == "n1-standard-8, at most 2 h: no TPU, no chip-hours"


def test_chips_that_nobody_knows_are_not_taken_for_none() -> None:
    hours = ChipHours.of(Machine("ct5lp-hightpu-4t", tpu_topology="3x3"), 3600)
    with pytest.raises(ChipHoursError, match="chip-hours are not known"):
        hours.require(1000)
