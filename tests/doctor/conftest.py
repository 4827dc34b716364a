"""The doctor's tests depend on their inputs, not on the kernel of the machine that they run on."""

from collections.abc import Iterator

import pytest

from t5x_harness.doctor import machine


@pytest.fixture(scope="session", autouse=True)
def machine_that_mounts() -> Iterator[None]:
    """Simulates a kernel that refuses no mount."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "refusal", lambda _: None)
        yield
