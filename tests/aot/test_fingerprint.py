"""What is kept of a compilation is for the same program on the same devices by the same compiler."""

from __future__ import annotations

from t5x_harness.aot.libtpu import fingerprint
from t5x_harness.slices.slice import get_slice

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
