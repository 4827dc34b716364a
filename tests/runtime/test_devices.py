"""Forced CPU devices are set before JAX's backend exists, or refused with a fix."""

import pytest

from t5x_harness.slices.devices import device_environment
from t5x_harness.slices.slice import get_slice


@pytest.mark.parametrize("first", ["", "import jax"])
def test_devices_are_forced_before_and_after_jax_is_imported(machine, first: str) -> None:
    program = f"""
    {first}
    import subprocess, sys
    from t5x_harness.slices.devices import force_cpu_devices
    force_cpu_devices(4)
    force_cpu_devices(6)
    import jax
    print(jax.device_count(), jax.devices()[0].platform, flush=True)
    force_cpu_devices(6)
    subprocess.run([sys.executable, "-c", "import jax; print(jax.device_count())"], check=True)
    """
    assert machine.run(program).stdout.split() == ["6", "cpu", "6"]


def test_too_late_says_who_and_what_to_do(machine) -> None:
    (machine.root / "my_model.py").write_text("import jax.numpy as jnp\nTABLE = jnp.ones(3)\n")
    program = """
    import os
    import my_model
    from t5x_harness.slices.devices import DevicesTooLate, force_cpu_devices
    force_cpu_devices(1)
    before = dict(os.environ)
    try:
        force_cpu_devices(8)
    except DevicesTooLate as error:
        print(error)
    assert dict(os.environ) == before
    """
    message = machine.run(program).stdout
    assert message.startswith(
        "8 CPU devices are needed, but JAX has already created its backend with 1 cpu device, and it does so once per"
        " process."
    )
    assert "Modules loaded here that use JAX: my_model." in message
    assert message.rstrip().endswith("t5x-harness exec --slice NAME -- python …")


def test_the_users_own_patience_is_kept() -> None:
    own = "--xla_cpu_collective_call_terminate_timeout_seconds=9"
    flags = device_environment(get_slice("v3-8"), {"XLA_FLAGS": own})["XLA_FLAGS"]
    assert flags.count("terminate_timeout") == 1
    assert own in flags
