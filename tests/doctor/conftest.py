"""The doctor's tests are about what it is told, not about the kernel of the machine that they run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from t5x_harness.doctor import machine
from t5x_harness.google.gcs_mount import Mount, Way


@pytest.fixture(scope="session", autouse=True)
def machine_that_mounts() -> Iterator[None]:
    """A kernel that refuses nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "probe", lambda: Mount(Way.NAMESPACE))
        yield
