"""Equal layers are one row with a factor, rows show which mesh axis cuts what, and hosts read the right parts."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from t5x_harness.findings.text import Bytes
from t5x_harness.plan.arrays import Leaf, array_tables, fold, module_table
from t5x_harness.plan.state_shapes import DataLayout, data_layout
from t5x_harness.slices.mesh import fitting_submeshes, plan_mesh
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Finding

MESH = {"data": 4, "model": 2}


def leaf(path: str, shape: tuple[int, ...], spec: tuple[Any, ...] = (), names: tuple[str | None, ...] = ()) -> Leaf:
    return Leaf(path, shape, np.dtype("float32"), spec, names)


@pytest.fixture
def model() -> list[Leaf]:
    layers = [
        leaf(f"target/encoder/layers_{layer}/mlp/{name}/kernel", (8, 6), (None, "model"), ("embed", "mlp"))
        for layer in range(12)
        for name in ("wi_0", "wi_1")
    ]
    return [*layers, leaf("target/embedder/embedding", (32, 8), ("model",), ("vocab", "embed"))]


def test_a_layer_that_differs_has_a_row_of_its_own(model: list[Leaf]) -> None:
    odd = leaf("target/encoder/layers_12/mlp/wi_0/kernel", (8, 7), (None, "model"), ("embed", "mlp"))
    counts = {folded.leaf.shape: folded.count for folded in fold([*model, odd]) if "wi_0" in folded.path}
    assert counts == {(8, 6): 12, (8, 7): 1}


def test_modules(model: list[Leaf]) -> None:
    assert module_table(fold(model)).splitlines() == [
        "module            layers  arrays  parameters  share",
        "encoder/layers_*      12      24       1,152  81.8%",
        "embedder                       1         256  18.2%",
        "all                           25       1,408",
    ]


def test_arrays(model: list[Leaf]) -> None:
    tables = array_tables(fold(model), MESH)
    assert {title: table.splitlines() for title, table in tables.items()} == {
        "arrays of encoder/layers_*, 12 of each, float32": [
            "array            size by axis    cut by    on a device  bytes",
            "mlp/wi_0/kernel  embed 8, mlp 6  -, model  8x3           96 B",
            "mlp/wi_1/kernel  embed 8, mlp 6  -, model  8x3           96 B",
        ],
        "arrays outside of layers, float32": [
            "array               size by axis       cut by    on a device  bytes",
            "embedder/embedding  vocab 32, embed 8  model, -  16x8         512 B",
        ],
    }


def test_arrays_of_different_types_and_times_say_so() -> None:
    other = Leaf("target/layers_0/count", (), np.dtype("int32"), (), ())
    table = array_tables(fold([leaf("target/layers_0/w", (4, 4)), leaf("target/layers_1/w", (4, 4)), other]), MESH)
    assert {title: text.splitlines() for title, text in table.items()} == {
        "arrays of layers_*": [
            "array  times  size by axis  cut by  on a device  type     bytes",
            "w          2  4, 4          -, -    4x4          float32   64 B",
            "count      1  1             -       1            int32      4 B",
        ]
    }


def test_two_mesh_axes_on_one_dimension_and_an_uneven_cut() -> None:
    cut = leaf("target/w", (9, 5), (("data", "model"), None), ("a", None))
    (table,) = array_tables(fold([cut]), MESH).values()
    assert re.split(r"\s{2,}", table.splitlines()[1]) == ["w", "a 9, 5", "data+model, -", "2x5", "40 B"]
    assert cut.device_bytes(MESH) == 40


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (16 * 2**20, "16 MiB"), (5_595_000_000, "5.21 GiB")],
)
def test_bytes(number: int, text: str) -> None:
    assert str(Bytes(number)) == text


def test_the_order_of_layers_changes_nothing(model: list[Leaf]) -> None:
    tenth_first = sorted(model, key=lambda each: "layers_10" not in each.path)
    assert module_table(fold(tenth_first)) == module_table(fold(model))
    assert array_tables(fold(tenth_first), MESH) == array_tables(fold(model), MESH)


def test_the_two_inputs_of_a_gated_mlp_are_not_layers() -> None:
    scanned = [leaf(f"target/decoder/decoder/mlp/wi_{i}/kernel", (4, 2, 8)) for i in (0, 1)]
    assert [(folded.path, folded.count) for folded in fold(scanned)] == [
        ("decoder/decoder/mlp/wi_0/kernel", 1),
        ("decoder/decoder/mlp/wi_1/kernel", 1),
    ]


def layout(name: str, submesh: tuple[int, ...], data: object = "data") -> DataLayout:
    ids = np.array(plan_mesh(get_slice(name), None, submesh).device_indices)
    devices = np.vectorize(lambda number: SimpleNamespace(id=number), otypes=[object])(ids)
    shape = {"data": ids.shape[0], "model": ids.shape[1]}
    mesh = SimpleNamespace(devices=devices, axis_names=tuple(shape), shape=shape)
    return data_layout(SimpleNamespace(mesh=mesh, data_partition_spec=(data,)), get_slice(name))


@pytest.mark.parametrize("name", ["v3-8", "v3-32", "v4-64", "v5e-16"])
def test_every_submesh_of_a_slice(name: str) -> None:
    slice_ = get_slice(name)
    for submesh in fitting_submeshes(slice_):
        rows = plan_mesh(slice_, None, submesh).device_indices
        of_first_host = sum(any(slice_.coordinates[i].host == 0 for i in row) for row in rows)
        assert layout(name, submesh) == DataLayout(len(rows), len(rows) // of_first_host, slice_.hosts)


def test_hosts_that_share_a_copy_of_the_model_read_the_same() -> None:
    found = layout("v3-32", (4, 4, 1, 2))
    assert (found, found.hosts_per_shard) == (DataLayout(positions=1, shards=1, hosts=4), 4)


def test_without_a_data_axis_everybody_reads_everything() -> None:
    assert layout("v3-32", (1, 1, 1, 1), data=None) == DataLayout(positions=1, shards=1, hosts=4)


def test_a_rule_that_splits_one_axis_twice_is_at_fault_not_the_size_of_the_axis(
    find: Callable[..., Finding],
) -> None:
    partitions = "partitioning.PjitPartitioner.num_partitions = 2"
    rules = "partitioning.PjitPartitioner.logical_axis_rules"
    found = find("MSH06", partitions, f"{rules} = [('batch', 'data'), ('heads', ('data', 'model'))]")
    assert found.binding == rules
    assert "and the rule ('heads', ('data', 'model')) splits it over 4 of data x 2 of model devices" in found.message
    assert found.fix == "split it over one mesh axis: ('heads', 'data')"
