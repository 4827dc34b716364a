"""T5X builds the slice's mesh over this machine's CPU devices.

Each case is a separate process, because JAX creates one backend per process.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.slices.emulated_mesh import SliceView
from t5x_harness.slices.slice import get_slice

RECORDED = json.loads((Path(__file__).parent.parent / "reference" / "tpu_meshes.json").read_text())
PRELUDE = """
import json, sys
from t5x_harness.runtime import choice as t5x_runtime
from t5x_harness.slices.devices import force_cpu_devices
from t5x_harness.upstream.t5x import install_mesh
from t5x_harness.slices.slice import get_slice
t5x_runtime.activate(t5x_runtime.find_runtime("embedded"))

def ids(mesh):
    return [[d.id for d in row] for row in mesh.devices]
"""


def run(program: str, prelude: str = PRELUDE, cwd: Path | None = None) -> list[str]:
    command = [sys.executable, "-c", prelude + textwrap.dedent(program)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.stack
def test_a_backend_that_no_tpu_host_has_is_refused_as_jax_does() -> None:
    module: dict[str, Any] = {"jax": None}
    exec("def asked(backend): return jax.devices(backend)", module)
    asked = SliceView(module["asked"], get_slice("v3-8"), None).wrapped(module["asked"])
    assert len(asked(None)) == len(asked("tpu")) == 8
    with pytest.raises(RuntimeError, match="Unknown backend 'tpuu': a TPU host has tpu and cpu"):
        asked("tpuu")


@pytest.mark.stack
def test_partitioners_get_the_recorded_meshes_on_cpu_devices() -> None:
    """One process uses slices of the same size; the hook is installed before the import, and replaced after it.

    If only a few data positions are requested, the mesh consists of the first rows of the same mesh.
    """
    names = ["v3-128", "v2-128"]
    line, few, hybrid = run(
        f"""
        install_mesh(get_slice("v3-128"))
        force_cpu_devices(128)
        from t5x import partitioning
        meshes = {{}}
        for name in {names}:
            install_mesh(get_slice(name))
            for number in (1, 2, 4, 8, 16):
                mesh = partitioning.PjitPartitioner(num_partitions=number).mesh
                assert {{d.platform for d in mesh.devices.flat}} == {{"cpu"}}
                meshes[f"{{name}} {{number}}"] = ids(mesh)
        print(json.dumps(meshes))
        install_mesh(get_slice("v2-128"), data_positions=4)
        few = partitioning.PjitPartitioner(num_partitions=2).mesh
        print(json.dumps([dict(few.shape), ids(few)]))
        hybrid = partitioning.default_mesh(2, ici_mesh_shape=(1, 64, 2), dcn_mesh_shape=(1, 1, 1))
        print(json.dumps(dict(hybrid.shape)))
        """
    )
    assert json.loads(few) == [{"data": 4, "model": 2}, RECORDED["v2-128"]["meshes"]["2"]["device_ids"][:4]]
    assert json.loads(hybrid) == {"replica": 1, "data": 4, "model": 2}
    meshes = json.loads(line)
    assert len(meshes) == 10
    for case, devices in meshes.items():
        name, number = case.split()
        assert devices == RECORDED[name]["meshes"][number]["device_ids"]


@pytest.mark.stack
def test_t5x_refuses_on_cpu_what_it_refuses_on_the_slice_and_keeps_its_constraints() -> None:
    """Tests submeshes, several slices, a wrong number of devices, and the constraint that T5X drops on CPU."""
    out = run(
        """
        force_cpu_devices(8)
        from t5x import partitioning
        plain = partitioning.default_mesh
        assert ids(plain(2)) == [list(range(8))]  # what T5X does on CPU

        install_mesh(get_slice("v3-8"))
        assert ids(partitioning.default_mesh(8, (1, 1, 1, 2))) == [[0, 1], [4, 5], [2, 3], [6, 7]]
        assert ids(partitioning.get_mesh((2, 1, 1, 2))) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        hybrid = partitioning.default_mesh(2, ici_mesh_shape=(1, 4, 2), dcn_mesh_shape=(1, 1, 1))
        assert dict(hybrid.shape) == {"replica": 1, "data": 4, "model": 2}

        def refusal(**arguments):
            try:
                partitioning.default_mesh(**arguments)
            except Exception as error:
                print(type(error).__name__, error)

        refusal(num_partitions=16)
        refusal(num_partitions=2, model_parallel_submesh=(2, 1))
        refusal(num_partitions=2, ici_mesh_shape=(1, 4, 2), dcn_mesh_shape=(2, 1, 1))

        import jax
        from jax.sharding import PartitionSpec
        constrain = lambda x: partitioning.with_sharding_constraint(x, PartitionSpec("data"))
        with jax.set_mesh(partitioning.default_mesh(2)):
            print("sharding_constraint" in str(jax.make_jaxpr(constrain)(jax.numpy.ones(8))))

        install_mesh(get_slice("v3-32"))
        refusal(num_partitions=2)
        """
    )
    assert out[0] == (
        "MeshRefused submesh (4, 2, 1, 2) does not divide v3-8's devices (2, 2, 1, 2);"
        " v3-8 can be cut into submeshes of 1, 2, 4 or 8 devices"
    )
    assert out[1].startswith("MeshRefused submesh (2, 1) is not four numbers (x, y, z, cores), each at least 1;")
    assert out[2].startswith(
        "MeshRefused ici_mesh_shape (1, 4, 2) with dcn_mesh_shape (2, 1, 1) does not fit v3-8: 2x2 chips, 8 devices"
    )
    assert out[3] == "True"
    assert out[4] == (
        "DeviceCountMismatch slice v3-32 has 32 devices, but this process has 8 cpu devices: start it as"
        " t5x-harness exec --slice v3-32 -- COMMAND, or call t5x_harness.slices.devices.force_cpu_devices(32) before"
        " anything uses JAX"
    )


FORK = """
import jax, logging
from jax.sharding import Mesh

def get_mesh(model_parallel_submesh, input_devices=(), input_local_devices=(), tile_by_host_if_needed=True,
             backend=None):
    raise NotImplementedError

def default_mesh(num_partitions, model_parallel_submesh=None, backend=None, ici_mesh_shape=None, dcn_mesh_shape=None):
    import numpy
    devices = numpy.array(jax.devices()).reshape(-1, num_partitions)
    assert devices[0, 0].platform == "tpu" and devices[0, 0].device_kind == "TPU v5 lite"
    assert (jax.device_count(), jax.local_device_count(), jax.process_count(), jax.process_index()) == (16, 4, 4, 0)
    return Mesh(devices, ("data", "model"))

def with_sharding_constraint(x, axis_resources):
    return x
"""


@pytest.mark.stack
def test_a_fork_with_a_mesh_of_its_own_keeps_it_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "t5x").mkdir()
    (tmp_path / "t5x" / "__init__.py").touch()
    (tmp_path / "t5x" / "partitioning.py").write_text(FORK)
    program = """
    import logging, sys
    from t5x_harness.slices.devices import force_cpu_devices
    from t5x_harness.upstream.t5x import install_mesh
    from t5x_harness.slices.slice import get_slice
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    force_cpu_devices(16)
    install_mesh(get_slice("v5e-16"))
    from t5x import partitioning
    print([d.id for d in partitioning.default_mesh(2).devices[1]])
    """
    assert run(program, prelude="", cwd=tmp_path) == [
        "this T5X lays out v5e-16 as {'data': 8, 'model': 2}, where the plan says that it refuses;"
        " its own layout is used",
        "[2, 3]",
    ]


@pytest.mark.stack
def test_parameters_are_sharded_as_on_the_slice() -> None:
    """A parameter split over `model` is on the devices of the slice's mesh, half of it on each."""
    [line] = run(
        """
        install_mesh(get_slice("v3-8"))
        force_cpu_devices(8)
        from t5x import partitioning
        from jax.sharding import NamedSharding, PartitionSpec
        import jax
        mesh = partitioning.PjitPartitioner(num_partitions=2).mesh
        kernel = jax.device_put(jax.numpy.ones((4, 6)), NamedSharding(mesh, PartitionSpec(None, "model")))
        print(json.dumps({s.device.id: [s.data.shape, s.index[1].start] for s in kernel.addressable_shards}))
        """
    )
    placed = json.loads(line)
    assert {shape[1] for shape, _ in placed.values()} == {3}
    assert {int(i) for i, (_, start) in placed.items() if start} == {1, 3, 5, 7}
