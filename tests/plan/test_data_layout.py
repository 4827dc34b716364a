"""T5X's data layout on a pod, worked out in one process: the parts of the data that its hosts read."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from t5x_harness.plan.state_shapes import DataLayout, data_layout
from t5x_harness.slices.mesh import fitting_submeshes, plan_mesh
from t5x_harness.slices.slice import get_slice


def layout(name: str, submesh: tuple[int, ...], data: object = "data") -> DataLayout:
    ids = np.array(plan_mesh(get_slice(name), None, submesh).device_indices)
    devices = np.vectorize(lambda number: SimpleNamespace(id=number), otypes=[object])(ids)
    shape = {"data": ids.shape[0], "model": ids.shape[1]}
    mesh = SimpleNamespace(devices=devices, axis_names=tuple(shape), shape=shape)
    return data_layout(SimpleNamespace(mesh=mesh, data_partition_spec=(data,)), get_slice(name))


@pytest.mark.parametrize("name", ["v3-8", "v3-32", "v4-64", "v5e-16"])
def test_every_submesh_of_a_slice(name: str) -> None:
    for submesh in fitting_submeshes(get_slice(name)):
        plan = plan_mesh(get_slice(name), None, submesh)
        found = layout(name, submesh)
        assert (found.positions, found.shards, found.hosts) == (plan.shape["data"], plan.data_shards, plan.slice.hosts)
        assert found.hosts_per_shard == plan.slice.hosts // plan.data_shards


def test_hosts_that_share_a_copy_of_the_model_read_the_same() -> None:
    assert layout("v3-32", (4, 4, 1, 2)) == DataLayout(positions=1, shards=1, hosts=4)
    assert layout("v3-32", (4, 4, 1, 2)).hosts_per_shard == 4


def test_without_a_data_axis_everybody_reads_everything() -> None:
    assert layout("v3-32", (1, 1, 1, 1), data=None) == DataLayout(positions=1, shards=1, hosts=4)
