"""The TPU compiler of this environment: its requirements, untried newer versions, and repeated compilations."""

import importlib.util
import subprocess
import sys

import pytest

from t5x_harness.aot import libtpu
from t5x_harness.aot.libtpu import fingerprint
from t5x_harness.slices.slice import get_slice

SLICES = ("v2-8", "v3-8", "v3-32", "v4-8", "v4-32", "v4-512", "v5e-1", "v5e-8", "v5e-16", "v5p-8", "v6e-8", "v6e-16")
DESCRIBE = """
import os, sys
from t5x_harness.aot.libtpu import describe_devices, environment
given = {k: v for k, v in environment(os.environ).items() if v is not None}
os.environ.update(given)
from t5x_harness.slices.slice import get_slice
for name in sys.argv[1:]:
    slice_ = get_slice(name)
    devices = describe_devices(slice_)
    kinds = {device.device_kind for device in devices}
    hosts = [device.process_index for device in devices] == [place.host for place in slice_.coordinates]
    print(name, len(devices) == slice_.num_devices, hosts, kinds == {slice_.generation.device_kind})
"""


def test_the_users_flags_for_the_compiler_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_spmd_rng_bit_generator_unsafe=true")
    changed = libtpu.environment({"LIBTPU_INIT_ARGS": "--xla_tpu_spmd_rng_bit_generator_unsafe=true"})
    assert changed["LIBTPU_INIT_ARGS"] == "--xla_tpu_spmd_rng_bit_generator_unsafe=true"
    assert changed["JAX_PLATFORMS"] == "cpu"


def test_only_versions_that_are_newer_than_those_tried_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, untried in (
        ({"libtpu": "0.1.2", "jax": libtpu.TRIED["jax"]}, ["libtpu 0.1.2"]),
        ({"libtpu": "0.0.9", "jax": None}, []),
    ):
        monkeypatch.setattr(libtpu, "version_of", there.get)
        tried = f"newer than {libtpu.TRIED['libtpu']}, with which the numbers of docs/aot.md were measured"
        assert libtpu.untried() == [f"{package}: {tried}" for package in untried]


def test_without_it_the_message_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libtpu, "is_installed", lambda: False)
    with pytest.raises(libtpu.LibtpuMissing, match=r"not installed: python -m pip install 't5x-harness\[aot\]'"):
        libtpu.describe_devices(get_slice("v3-8"))


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_its_devices_are_those_of_the_slices() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE, *SLICES], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines() == [f"{name} True True True" for name in SLICES]


V3 = get_slice("v3-8")


def test_slices_devices_and_flags_tell_programs_apart() -> None:
    found = [
        fingerprint("module", V3, range(8), {}),
        fingerprint("other", V3, range(8), {}),
        fingerprint("module", get_slice("v2-8"), range(8), {}),
        fingerprint("module", get_slice("v3-32"), range(8), {}),
        fingerprint("module", V3, (1, 0, 2, 3, 4, 5, 6, 7), {}),
        fingerprint("module", V3, range(8), {"LIBTPU_INIT_ARGS": "--xla_tpu_scoped_vmem_limit_kib=1024"}),
    ]
    assert len(set(found)) == len(found)
    assert fingerprint("module", V3, list(range(8)), {"HOME": "/"}) == found[0]
