"""Two mounts of a store and its own API all see the right content, for any operations in any order."""

import itertools
import os
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from kernel import Kernel
from mounted import Mounted, needs
from two_mounts import TwoMounts

from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.storage.store import ObjectStore

# MOUNT_EXAMPLES=5000 pytest tests/google/gcs_mount/test_fuse_two_mounts.py tries more examples, new ones each time.
EXAMPLES = int(os.environ.get("MOUNT_EXAMPLES", "0"))


def run(machine: type[TwoMounts] | object, examples: int) -> None:
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            max_examples=EXAMPLES or examples,
            stateful_step_count=50,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking an example takes minutes
            derandomize=not EXAMPLES,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_two_mounts_and_the_api(store: ObjectStore, tmp_path: Path) -> None:
    """The mounts get the requests that the kernel would send, with no page cache in between."""
    count = itertools.count()

    def machine() -> TwoMounts:
        bucket = f"bucket-{next(count)}"
        store.create_bucket(bucket)
        return TwoMounts(store, bucket, [Kernel(tmp_path, bucket) for _ in range(2)], keeps_pages=False)

    run(machine, 120)


def test_two_mounts_and_the_api_with_the_kernel_between(store: ObjectStore, tmp_path: Path) -> None:
    """The mounts get system calls, which the kernel answers from its page cache if it can."""
    needs(MountMode.FUSE)
    count = itertools.count()
    with Mounted(tmp_path) as first, Mounted(tmp_path) as second:

        def machine() -> TwoMounts:
            bucket = first.bucket = second.bucket = f"bucket-{next(count)}"
            store.create_bucket(bucket)
            return TwoMounts(store, bucket, [first, second], keeps_pages=True)

        run(machine, 60)
