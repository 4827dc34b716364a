"""A slice's name determines the devices that JAX sees on it, in libtpu's order."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.slices.slice import SliceError, get_slice, slice_names

REFERENCE = Path(__file__).parent.parent / "reference"
RECORDED = json.loads((REFERENCE / "tpu_meshes.json").read_text())
# Device order of libtpu 0.0.51 for slices that the reference does not record, as run lengths along the order:
# the first device of each of the first five hosts.
FIRST_OF_HOSTS = {
    "v3:2x4": [(0, 0, 0), (0, 2, 0)],
    "v3:4x2": [(0, 0, 0), (2, 0, 0)],
    "v3:8x4": [(0, 0, 0), (2, 0, 0), (4, 0, 0), (6, 0, 0), (0, 2, 0)],
    "v4:4x4x2": [(0, 0, 0), (2, 0, 0), (0, 2, 0), (2, 2, 0), (0, 0, 1)],
    "v5e:1x4": [(0, 0, 0), (0, 2, 0)],
    "v6e:2x8": [(0, 0, 0), (0, 2, 0), (0, 4, 0), (0, 6, 0)],
}


@pytest.mark.parametrize("name", RECORDED)
def test_devices_are_the_recorded_ones(name: str) -> None:
    slice_, recorded = get_slice(name), RECORDED[name]
    assert [list(device) for device in slice_.coordinates] == recorded["coords_in_device_order"]
    assert slice_.hosts == recorded["hosts"]
    assert slice_.generation.device_kind == recorded["device_kind"]
    assert slice_.num_devices == recorded["num_devices"]


@pytest.mark.parametrize("name", FIRST_OF_HOSTS)
def test_hosts_come_in_libtpus_order(name: str) -> None:
    first = {}
    for device in get_slice(name).coordinates:
        first.setdefault(device.host, (device.x, device.y, device.z))
    assert [first[host] for host in sorted(first)][:5] == FIRST_OF_HOSTS[name]


@pytest.mark.parametrize("name", slice_names())
def test_every_named_slice_is_whole(name: str) -> None:
    slice_ = get_slice(name)
    places = {device[:4] for device in slice_.coordinates}
    assert len(places) == slice_.num_devices == math.prod(slice_.bounds)
    assert {d.host for d in slice_.coordinates} == set(range(slice_.hosts))
    assert int(name.rpartition("-")[2]) == slice_.num_chips * slice_.generation.cores_per_name
    assert 7 < slice_.usable_hbm_bytes / 2**30 < 96


@given(st.sampled_from(["v2", "v3", "v4", "v5p"]), st.tuples(*[st.sampled_from([1, 2, 4, 6, 8])] * 2))
def test_a_topology_has_the_devices_of_its_chips(generation: str, shape: tuple[int, int]) -> None:
    slice_ = get_slice(f"{generation}:{shape[0]}x{shape[1]}")
    assert slice_.topology == (*shape, 1)
    assert len(slice_.coordinates) == math.prod(shape) * slice_.generation.cores_per_chip
    # Within a host, places are next to each other.
    for host in range(slice_.hosts):
        mine = [d for d in slice_.coordinates if d.host == host]
        assert all(max(d[axis] for d in mine) - min(d[axis] for d in mine) <= 1 for axis in range(4))


@given(st.text(max_size=20))
def test_any_other_text_is_refused_with_names_that_exist(text: str) -> None:
    if text.strip().lower() in slice_names():
        return
    with pytest.raises(SliceError) as error:
        get_slice(text)
    assert "v3:4x4" in str(error.value)


def test_names_may_be_written_as_google_does() -> None:
    assert get_slice("v5litepod-16") == get_slice("V5E-16")
    assert get_slice("v5litepod:4x4").coordinates == get_slice("v5e-16").coordinates


def test_single_vm_slices_of_eight_chips_have_one_host() -> None:
    assert [get_slice(n).hosts for n in ("v5e-8", "v6e-8", "v5e-16", "v3-8", "v4-8", "v5p-8")] == [1, 1, 4, 1, 1, 1]


def test_describe_is_one_line() -> None:
    assert get_slice("v3-32").describe() == "v3-32: 4x4 chips, 32 devices (TPU v3), 4 hosts"
    assert get_slice("v5e-1").describe() == "v5e-1: 1x1 chip, 1 device (TPU v5 lite), 1 host"


FORM = "or give a topology in chips, such as v3:4x4, v4:2x2x4 or v5e:4x8 (v2, v3, v5e, v6e: 2 numbers; v4, v5p: 3)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v3-16", f"'v3-16' is not a TPU slice: nearest names: v3-8, v3-32, v3-64; {FORM}"),
        ("v3-4096", f"'v3-4096' is not a TPU slice: nearest names: v3-512, v3-1024, v3-2048; {FORM}"),
        ("v3", f"'v3' is not a TPU slice: nearest names: v3-8 … v3-2048; {FORM}"),
        ("v5x-8", f"'v5x-8' is not a TPU slice: nearest names: v5p-8, v5e-8, v5p-128; {FORM}"),
        (
            "v3:3x3",
            "'v3:3x3' cannot be cut into hosts of 2x2 chips: x and y are each 1 or an even number;"
            " nearest names: v3-8, v3-32",
        ),
        ("v3:2x2x2", "'v3:2x2x2' has too many numbers: v3 chips form a grid of 2 dimensions, such as 4x4"),
        ("v4:0x2x2", "'v4:0x2x2' has no chips: every number of a topology is at least 1"),
        ("v3:64x64", "'v3:64x64' has 4096 chips: the largest v3 slice has 1024"),
    ],
)
def test_what_is_no_slice_is_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(SliceError) as error:
        get_slice(name)
    assert str(error.value) == message


def test_slices_and_meshes_need_neither_jax_nor_numpy() -> None:
    program = (
        "import sys; from t5x_harness.slices import mesh, slice as slices; from t5x_harness.upstream import t5x;"
        "t5x.install_mesh(slices.get_slice('v3-8')); mesh.plan_mesh(slices.get_slice('v3-8'), 2);"
        "print([m for m in ('jax', 'numpy', 't5x') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
