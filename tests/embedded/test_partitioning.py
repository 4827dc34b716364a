"""Partitioners divide data, parameters and functions by axis names, over the mesh that T5X has on each slice."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.linen import partitioning as flax_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from small_states import axes, flat, partitioner, state
from t5x import optimizers, partitioning, train_state

COMMON = [(axis, None) for axis in ("relpos_buckets", "abspos_buckets", "length", "layers", "stack", "mlp_activations")]
SHARDED = [(axis, "model") for axis in ("vocab", "mlp", "heads", "joined_kv")]
WIDE = [("batch", "data"), *SHARDED[:3], ("kv", None), SHARDED[3]]


def pod(hosts: tuple[int, ...], local: tuple[int, ...], here: tuple[int, ...], names: tuple[str, ...]) -> Any:
    """Returns a mesh of devices in several processes, seen from one of them."""
    shape = tuple(h * n for h, n in zip(hosts, local, strict=True))
    devices = np.arange(np.prod(shape)).reshape(shape)
    window = tuple(slice(i * n, (i + 1) * n) for i, n in zip(here, local, strict=True))
    own = devices[window]
    return SimpleNamespace(
        axis_names=names,
        devices=devices,
        shape=dict(zip(names, shape, strict=True)),
        local_mesh=SimpleNamespace(devices=own, shape=dict(zip(names, own.shape, strict=True))),
    )


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ((1, 1), [*WIDE[:2], ("embed", None), *WIDE[2:]]),
        ((2, 1), [*WIDE, ("embed", "model")]),
        ((1, 2), [*WIDE, ("embed", "data")]),
        ((2, 2), [*WIDE, ("embed", "model"), ("embed", "data")]),
    ],
)
def test_standard_rules_come_in_order(dims: tuple[int, int], expected: list) -> None:
    assert list(partitioning.standard_logical_axis_rules(*dims)) == expected + COMMON
    more = partitioning.standard_logical_axis_rules(*dims, additional_rules=[("expert", "data")])
    assert list(more) == [*expected, *COMMON, ("expert", "data")]


def test_the_mesh_comes_from_default_mesh_as_it_is_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = partitioning.PjitPartitioner(model_parallel_submesh=(1, 1, 1, 2), backend="cpu")
    asked = []
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))
    monkeypatch.setattr(partitioning, "default_mesh", lambda *arguments: asked.append(arguments) or mesh)
    assert made.mesh is mesh
    assert made.mesh is mesh
    assert asked == [(None, (1, 1, 1, 2), "cpu", None, None)]


def test_names_of_arrays_are_leaves() -> None:
    names = partitioning.AxisNames("embed", "mlp")
    assert jax.tree.leaves({"a": names}) == [names]
    assert names == ("embed", "mlp")
    assert repr(names) == "AxisNames('embed', 'mlp')"


def test_mesh_axes_follow_the_rules_and_none_is_replicated() -> None:
    specs = partitioner().get_mesh_axes(state(optimizer=optimizers.adamw(0.1))).state_dict()
    assert specs["target"]["enc"]["kernel"] == PartitionSpec(None, "model")
    assert specs["target"]["scale"] == PartitionSpec(None)
    assert specs["state"]["param_states"]["0"]["mu"]["enc"]["kernel"] == PartitionSpec(None, "model")
    assert (specs["state"]["step"], specs["state"]["param_states"]["0"]["count"]) == (None, None)


def test_a_function_runs_on_the_mesh_with_mesh_and_rules_set() -> None:
    made, seen = partitioner(), []

    def double(x: Any, y: Any) -> Any:
        seen.append((partitioning.global_mesh_defined(), flax_partitioning.get_axis_rules()))
        return 2 * x + y

    run = made.partition(double, (PartitionSpec("data"), None), PartitionSpec(None, "model"))
    x = np.arange(8.0, dtype=np.float32).reshape(1, 8)
    result = run(x, 1.0)
    np.testing.assert_array_equal(result, 2 * x + 1)
    assert result.sharding.is_equivalent_to(NamedSharding(made.mesh, PartitionSpec(None, "model")), 2)
    assert seen == [(True, made.logical_axis_rules)]
    assert not partitioning.global_mesh_defined()
    np.testing.assert_array_equal(made.compile(run, x, 1.0)(x, 1.0), 2 * x + 1)


def test_a_partitioned_function_can_be_traced_by_another() -> None:
    run = partitioner().partition(lambda x: x + 1, None, None)
    assert jax.eval_shape(lambda x: run(x) + 1, jnp.ones((2,))).shape == (2,)
    np.testing.assert_array_equal(jax.jit(lambda x: run(x) + 1)(jnp.ones((2,))), [3, 3])


def test_static_arguments_and_donated_memory() -> None:
    run = partitioner().partition(lambda x, n: x * n, (None,), None, static_argnums=(1,), donate_argnums=(0,))
    x = jax.device_put(jnp.ones((4,)), NamedSharding(partitioner().mesh, PartitionSpec()))
    np.testing.assert_array_equal(run(x, 3), [3, 3, 3, 3])
    assert x.is_deleted()


def test_on_cpu_constraints_inside_a_function_do_nothing() -> None:
    x = jnp.ones((2,))
    assert partitioning.with_sharding_constraint(x, PartitionSpec("model")) is x


def test_the_second_process_of_a_replica_reads_the_same_data() -> None:
    made = partitioner()
    made.__dict__["mesh"] = pod((2, 2), (1, 4), (1, 1), ("data", "model"))
    layout = made.get_data_layout()
    assert (layout.shard_id, layout.num_shards, layout.is_first_host_in_replica_set) == (1, 2, False)


def test_several_slices_divide_the_batch_between_them() -> None:
    made = partitioner(ici_mesh_shape=(1, 4, 2), dcn_mesh_shape=(2, 1, 1))
    made.__dict__["mesh"] = pod((2, 2, 1), (1, 2, 2), (1, 0, 0), ("replica", "data", "model"))
    assert made.data_partition_spec == PartitionSpec(("replica", "data"))
    assert (made.data_mesh_size, made.data_shards, made.data_shard_id) == (8, 4, 2)
    assert dict(made.logical_axis_rules)["batch"] == ("replica", "data")


@pytest.mark.embedded("T5X knows chunks of even parts alone")
@pytest.mark.parametrize(
    ("here", "spec", "slices", "replica"),
    [
        ((1, 0), (None, "model"), (slice(None), slice(0, 8)), 1),
        ((0, 1), ("data", None), (slice(0, 4), slice(None)), 1),
        ((1, 1), ("data", "model"), (slice(4, 8), slice(8, 16)), 0),
        ((1, 1), (("data", "model"), None), (slice(6, 8), slice(None)), 0),
        ((1, 1), (None, None), (slice(None), slice(None)), 3),
    ],
)
def test_a_process_knows_its_part_of_an_array(here: tuple, spec: tuple, slices: tuple, replica: int) -> None:
    chunker = partitioning.LocalChunker(pod((2, 2), (2, 2), here, ("data", "model")))
    info = chunker.get_local_chunk_info((8, 16), spec)
    assert info == partitioning.LocalChunkInfo(slice=slices, replica_id=replica)


SLICES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "reference" / "tpu_meshes.json").read_text())
CASES = [(name, partitions) for name, facts in SLICES.items() for partitions in facts["meshes"]]


@dataclasses.dataclass(frozen=True)
class FakeDevice:
    """A TPU core or chip, as JAX shows it."""

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
    """Makes JAX show the devices of a slice; a mesh of them is returned as an array of their numbers."""

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
    by_id = {device.id: device for device in on_slice("v3-32")}  # 4 x 4 chips, 2 x 2 of them per host
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


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
class TestErrors:
    def test_what_cannot_be_is_refused(self) -> None:
        with pytest.raises(ValueError, match="activation_partitioning_dims=3 and parameter_partitioning_dims=1"):
            partitioning.standard_logical_axis_rules(3)
        with pytest.raises(ValueError, match="PjitPartitioner: set num_partitions or model_parallel_submesh"):
            partitioning.PjitPartitioner()

    def test_an_axis_that_comes_twice_is_named_with_its_parameter(self) -> None:
        twice = flax.core.freeze({"params": {"w": jnp.ones((2, 2))}, "params_axes": {"w_axes": axes("mlp", "mlp")}})
        with pytest.raises(ValueError, match=r"target/w: its axis names \('mlp', 'mlp'\) have no mesh axes"):
            partitioner().get_mesh_axes(train_state.InferenceState.create(twice))

    def test_the_choice_of_shardy_must_not_change(self) -> None:
        made = partitioner()
        made._use_shardy_partitioner = not made.use_shardy_partitioner
        with pytest.raises(ValueError, match=r"jax_use_shardy_partitioner was .* when this partitioner was made"):
            made.partition(lambda x: x, None, None)

    def test_by_default_a_partitioner_knows_no_axis_names(self) -> None:
        class Whole(partitioning.BasePjitPartitioner):
            pass

        names = Whole(num_partitions=1).get_logical_axes(state()).state_dict()
        assert set(flat(names).values()) == {None}
        with pytest.raises(NotImplementedError, match=r"Whole\.get_mesh_axes"):
            Whole(num_partitions=1).get_mesh_axes(state())

    def test_a_batch_is_divided_among_processes(self) -> None:
        made = partitioner()
        made.__dict__["mesh"] = pod((4, 1), (2, 2), (3, 0), ("data", "model"))
        layout = made.get_data_layout(16)
        assert layout == partitioning.DataLayout(16, shard_id=3, num_shards=4, is_first_host_in_replica_set=True)
        assert made.get_data_layout().batch_size == 8
        assert (made.data_mesh_size, made.data_partition_spec) == (8, PartitionSpec("data"))
        with pytest.raises(ValueError, match=r"Batch size 12 is not a multiple of 8, the data parallelism of the mesh"):
            made.get_data_layout(12)
        with pytest.raises(NotImplementedError, match="host_index"):
            made.get_data_layout(16, host_index=1)
