"""A planned mesh is the mesh that T5X builds on the slice, device for device, or the same refusal."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.slices.mesh import MeshRefused, fitting_submeshes, plan_mesh
from t5x_harness.slices.slice import get_slice

RECORDED = json.loads((Path(__file__).parent.parent / "reference" / "tpu_meshes.json").read_text())
CASES = [(name, int(number)) for name, slice_ in RECORDED.items() for number in slice_["meshes"]]


@pytest.mark.parametrize(("name", "num_partitions"), CASES)
def test_default_meshes_are_the_recorded_ones(name: str, num_partitions: int) -> None:
    recorded = RECORDED[name]["meshes"][str(num_partitions)]
    if "error" in recorded:
        with pytest.raises(MeshRefused):
            plan_mesh(get_slice(name), num_partitions)
    else:
        plan = plan_mesh(get_slice(name), num_partitions)
        assert [list(row) for row in plan.device_indices] == recorded["device_ids"]
        assert plan.shape == recorded["shape"]


# T5X's results (commit cc342d4) for submeshes that it does not choose itself: the first two rows of the mesh.
@pytest.mark.parametrize(
    ("name", "submesh", "rows"),
    [
        ("v5e-16", (4, 1, 1, 1), [(0, 1, 4, 5), (2, 3, 6, 7)]),
        ("v5e-16", (1, 4, 1, 1), [(0, 2, 8, 10), (1, 3, 9, 11)]),
        ("v5e-16", (2, 2, 1, 1), [(0, 2, 1, 3), (8, 10, 9, 11)]),
        ("v3-32", (4, 1, 1, 2), [(0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)]),
        ("v5p-8", (2, 2, 1, 1, 1), [(0, 2, 1, 3)]),
        ("v4-32", (1, 2, 4, 1), [(0, 2, 4, 6, 8, 10, 12, 14), (1, 3, 5, 7, 9, 11, 13, 15)]),
    ],
)
def test_given_submeshes_are_laid_out_as_t5x_does(
    name: str, submesh: tuple[int, ...], rows: list[tuple[int, ...]]
) -> None:
    assert list(plan_mesh(get_slice(name), 1, submesh).device_indices[:2]) == rows


NAMES = ["v3-8", "v3-32", "v4-16", "v4-64", "v5e-16", "v5p-32", "v5e-8", "v3:6x4", "v4:4x4x2", "v5e:1x4"]


@given(st.sampled_from(NAMES), st.data())
def test_every_submesh_that_fits_covers_the_slice_and_leaves_each_host_a_block(name: str, data: st.DataObject) -> None:
    slice_ = get_slice(name)
    submesh = data.draw(st.sampled_from(fitting_submeshes(slice_)))
    plan = plan_mesh(slice_, None, submesh)
    assert sorted(i for row in plan.device_indices for i in row) == list(range(slice_.num_devices))
    assert math.prod(plan.shape.values()) == slice_.num_devices
    host_of = [c.host for c in slice_.coordinates]
    assert len({len({host_of[i] for i in row}) for row in plan.device_indices}) == 1
    for host in range(slice_.hosts):
        rows = {r for r, row in enumerate(plan.device_indices) for i in row if host_of[i] == host}
        columns = {c for row in plan.device_indices for c, i in enumerate(row) if host_of[i] == host}
        assert len(rows) * len(columns) == slice_.num_devices // slice_.hosts
    # Each copy of the model is a box of the submesh's size.
    for row in plan.device_indices:
        spans = [len({slice_.coordinates[i][axis] for i in row}) for axis in range(4)]
        assert tuple(spans) == submesh


@given(st.sampled_from(NAMES), st.tuples(*[st.integers(-1, 9)] * 4))
def test_a_submesh_fits_or_is_refused_with_those_that_do(name: str, submesh: tuple[int, ...]) -> None:
    slice_ = get_slice(name)
    if submesh not in fitting_submeshes(slice_):  # the others are those of the test above
        with pytest.raises(MeshRefused):
            plan_mesh(slice_, None, submesh)


@pytest.mark.parametrize(
    ("name", "num_partitions", "submesh", "message"),
    [
        (
            "v3-8",
            16,
            None,
            "submesh (4, 2, 1, 2) does not divide v3-8's devices (2, 2, 1, 2);"
            " v3-8 can be cut into submeshes of 1, 2, 4 or 8 devices",
        ),
        (
            "v5e-16",
            4,
            None,
            "T5X has no default submesh for num_partitions=4 on TPU v5 lite (v5e-16);"
            " set model_parallel_submesh to one of 4 devices: (2, 2, 1, 1), (4, 1, 1, 1), (1, 4, 1, 1)",
        ),
        (
            "v3-8",
            3,
            None,
            "T5X has no default submesh for num_partitions=3 on TPU v3 (v3-8);"
            " v3-8 can be cut into submeshes of 1, 2, 4 or 8 devices",
        ),
        (
            "v4-16",
            8,
            None,
            "submesh (4, 2, 1, 1) does not divide v4-16's devices (2, 2, 2, 1);"
            " set model_parallel_submesh to one of 8 devices: (2, 2, 2, 1)",
        ),
        (
            "v3-32",
            None,
            (4, 1, 1, 1),
            "submesh (4, 1, 1, 1) spans a whole axis of v3-32's devices (4, 4, 1, 2), which T5X takes only with all 2"
            " cores of each chip;"
            " set model_parallel_submesh to one of 4 devices: (2, 1, 1, 2), (1, 2, 1, 2), (2, 2, 1, 1)",
        ),
        (
            "v3:6x4",
            None,
            (3, 1, 1, 1),
            "submesh (3, 1, 1, 1) is neither a factor nor a multiple of the devices of one host (2, 2, 1, 2) of v3:6x4;"
            " v3:6x4 can be cut into submeshes of 1, 2, 4, 8, 12, 16, 24 or 48 devices",
        ),
        (
            "v3-8",
            None,
            (2, 1),
            "submesh (2, 1) is not four numbers (x, y, z, cores), each at least 1;"
            " set model_parallel_submesh to one of 2 devices: (1, 1, 1, 2)",
        ),
        (
            "v5e-1",
            None,
            None,
            "neither num_partitions nor model_parallel_submesh is given; v5e-1 can be cut into submeshes of 1 device",
        ),
    ],
)
def test_a_refusal_says_why_and_what_fits(
    name: str, num_partitions: int | None, submesh: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(MeshRefused) as error:
        plan_mesh(get_slice(name), num_partitions, submesh)
    assert str(error.value) == message
