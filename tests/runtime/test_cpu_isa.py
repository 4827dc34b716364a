"""A level of a CPU's instructions is chosen, refused where the CPU lacks it, and gives another CPU's numbers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.runtime.cpu_isa import LEVELS, pin, why_not

HASWELL = "processor\t: 0\nflags\t\t: fpu sse4_2 avx fma avx2 bmi2\n"

NUMBERS = """
import jax
import jax.numpy as jnp
import numpy as np

values = np.random.default_rng(0).standard_normal((2, 96, 128), dtype=np.float32)
for dtype in (jnp.float32, jnp.bfloat16):
    rows, columns = jnp.asarray(values, dtype)
    loss = lambda a, b: jnp.square(jax.nn.softmax(a @ b.T)).mean()
    results = jax.jit(jax.value_and_grad(loss))(rows, columns)
    print([np.asarray(each).tobytes().hex() for each in results])
"""


@pytest.mark.parametrize(
    ("level", "says"),
    [
        ("avx2", ""),
        ("sse4.2", ""),
        ("avx512", "this CPU lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl; it has sse4.2, avx2"),
        ("amx", "there is no such level: sse4.2, avx2, avx512"),
    ],
)
def test_a_level_that_the_cpu_lacks_is_refused(tmp_path: Path, level: str, says: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(HASWELL)
    assert why_not(level, cpuinfo) == says


@pytest.mark.parametrize("text", [None, "processor : 0\nFeatures : asimd\n"])
def test_another_kind_of_machine_is_refused(tmp_path: Path, text: str | None) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if text is not None:
        cpuinfo.write_text(text)
    assert why_not("avx2", cpuinfo).startswith("levels of" if text is None else "this CPU lacks avx2, fma")


def test_what_the_user_set_stays() -> None:
    environment = {"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
    pin("avx2", environment)
    assert environment["XLA_FLAGS"] == "--xla_cpu_max_isa=SSE4_2 --xla_cpu_enable_platform_dependent_math=false"


@pytest.mark.stack
def test_xla_knows_every_level() -> None:
    """XLA ends a process whose options it does not know."""
    for level in LEVELS:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
        pin(level, environment)
        subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=environment, check=True)


@pytest.mark.journey
@pytest.mark.stack
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="qemu-user emulates the other CPU")
@pytest.mark.skipif(bool(why_not("avx2")), reason=why_not("avx2"))
def test_another_cpu_computes_the_same_bits() -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    pin("avx2", environment)
    found = [
        subprocess.run(
            [*machine, sys.executable, "-c", NUMBERS], env=environment, check=True, capture_output=True, text=True
        ).stdout
        for machine in ([], ["qemu-x86_64", "-cpu", "Haswell-v4"])
    ]
    assert found[0] == found[1]
