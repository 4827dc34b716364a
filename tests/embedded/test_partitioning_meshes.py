"""The mesh of every recorded TPU slice is T5X's, device for device, or refused as there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from t5x import partitioning

SLICES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "reference" / "tpu_meshes.json").read_text())
CASES = [(name, partitions) for name, facts in SLICES.items() for partitions in facts["meshes"]]


@dataclasses.dataclass(frozen=True)
class FakeDevice:
    """A TPU core, or a chip, as JAX shows it."""

    id: int
    coords: tuple[int, int, int]
    core_on_chip: int
    process_index: int
    device_kind: str
    platform: str = "tpu"


def devices_of(name: str) -> list[FakeDevice]:
    facts = SLICES[name]
    return [
        FakeDevice(i, (x, y, z), core, process, facts["device_kind"])
        for i, (x, y, z, core, process) in enumerate(facts["coords_in_device_order"])
    ]


@pytest.fixture
def on_slice(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets JAX show the devices of a slice; a mesh of them is returned as the array of their numbers."""

    def use(name: str) -> list[FakeDevice]:
        devices = devices_of(name)
        monkeypatch.setattr(jax, "devices", lambda backend=None: devices)
        monkeypatch.setattr(
            jax,
            "local_devices",
            lambda process_index=0, backend=None: [d for d in devices if d.process_index == process_index],
        )
        monkeypatch.setattr("t5x._meshes.Mesh", FakeMesh)
        return devices

    return use


class FakeMesh:
    def __init__(self, devices: np.ndarray, axis_names: tuple[str, ...]):
        self.ids = np.vectorize(lambda device: device.id)(devices).tolist()
        self.axis_names = tuple(axis_names)


@pytest.mark.embedded("it reaches into the module that builds the mesh")
@pytest.mark.parametrize(("name", "partitions"), CASES)
def test_default_mesh_is_the_recorded_one(on_slice: Any, name: str, partitions: str) -> None:
    on_slice(name)
    record = SLICES[name]["meshes"][partitions]
    if "error" not in record:
        mesh = partitioning.default_mesh(int(partitions))
        assert mesh.axis_names == ("data", "model")
        assert mesh.ids == record["device_ids"]
        return
    kind = {"ValueError": ValueError, "AssertionError": AssertionError}[record["error"].split(":")[0]]
    with pytest.raises(kind) as refusal:
        partitioning.default_mesh(int(partitions))
    assert type(refusal.value) is kind
    wanted = "set model_parallel_submesh" if kind is ValueError else "does not fit the devices"
    assert wanted in str(refusal.value)


@pytest.mark.embedded("it reaches into the module that builds the mesh")
def test_a_tile_of_ones_own_gives_a_mesh_where_no_default_is_known(on_slice: Any) -> None:
    on_slice("v5e-16")
    with pytest.raises(ValueError, match=r"num_partitions=4 on TPU v5 lite with devices \(4, 4, 1, 1\)"):
        partitioning.default_mesh(4)
    mesh = partitioning.default_mesh(None, model_parallel_submesh=(2, 2, 1, 1))
    assert [len(row) for row in mesh.ids] == [4] * 4
    assert sorted(i for row in mesh.ids for i in row) == list(range(16))


@pytest.mark.embedded("it reaches into the module that builds the mesh")
def test_hosts_do_not_order_devices_when_told_so(on_slice: Any) -> None:
    by_id = {device.id: device for device in on_slice("v3-32")}  # 4 x 4 chips, 2 x 2 of them in a host
    plain = partitioning.get_mesh((1, 1, 1, 2), tile_by_host_if_needed=False)
    assert [by_id[row[0]].coords[:2] for row in plain.ids[:5]] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    by_host = partitioning.get_mesh((1, 1, 1, 2))
    assert [by_id[row[0]].coords[:2] for row in by_host.ids[:5]] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]


@pytest.mark.embedded("it reaches into the module that builds the mesh")
def test_a_tile_that_does_not_fit_hosts_is_refused(on_slice: Any) -> None:
    devices = on_slice("v3-128")  # 8 x 8 chips
    three_chips = [d for d in devices if d.coords[0] < 6]
    local = [d for d in devices if d.coords[0] < 3 and d.coords[1] == 0]
    with pytest.raises(AssertionError, match="must in each dimension be a part or a multiple of a host's devices"):
        partitioning.get_mesh((2, 1, 1, 2), three_chips, local)


def test_coordinates_and_bounds_of_devices_with_and_without_coordinates() -> None:
    last = devices_of("v3-8")[-1]
    assert partitioning.get_coords(last) == (1, 1, 0, 1)
    assert partitioning.bounds_from_last_device(last) == (2, 2, 1, 2)
    cpu = jax.devices("cpu")[0]
    assert partitioning.get_coords(cpu) == (0, 0)
    assert partitioning.bounds_from_last_device(cpu) == (1, jax.local_device_count())


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_on_cpu_all_devices_of_a_process_are_one_replica(partitions: int) -> None:
    for mesh in (partitioning.default_mesh(partitions), partitioning.get_cpu_mesh()):
        assert dict(mesh.shape) == {"data": 1, "model": jax.local_device_count()}
        assert [device.id for device in mesh.devices.flat] == [device.id for device in jax.devices()]


@pytest.mark.embedded("T5X asks JAX for slices of GPUs")
def test_gpus_of_a_process_hold_a_replica_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def layout(**settings: Any) -> np.ndarray:
        asked.update(settings)
        return np.array([[jax.devices()[0]]])

    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    monkeypatch.setattr(jax, "process_count", lambda: 6)
    monkeypatch.setattr("jax.experimental.mesh_utils.create_hybrid_device_mesh", layout)
    for partitions, local, across in ((2, [2, 2], [6, 1]), (8, [1, 4], [3, 2])):
        partitioning.get_gpu_mesh(partitions)
        assert (asked["mesh_shape"], asked["dcn_mesh_shape"]) == (local, across)
    with pytest.raises(AssertionError, match="num_partitions=3 must be a part or a multiple of the 4 GPUs"):
        partitioning.get_gpu_mesh(3)
