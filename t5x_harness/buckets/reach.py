"""Decides which files in buckets can be read from here, and which a stand-in replaces."""

import functools
import os

from t5x_harness.buckets.addresses import is_remote, mount_of
from t5x_harness.buckets.emulated import store
from t5x_harness.spec import StandInPolicy


def is_replaced(path: str, policy: StandInPolicy) -> bool:
    """Tells whether a stand-in takes the place of the file or folder at ``path``."""
    if policy is StandInPolicy.ALL:
        return is_remote(path)
    return policy is StandInPolicy.MISSING and is_unreachable(path)


def is_not_asked(path: str) -> bool:
    """Tells whether a path is in a bucket that is not the user's own, in which no checkpoint is looked for."""
    here = store()
    return is_remote(path) and not (here is not None and here.is_declared(path))


def is_unreachable(path: str) -> bool:
    """Tells whether a path is in a bucket that cannot be read from here.

    A bucket that answers that it has no such file is within reach: the path is wrong, and the error is the user's.
    The same is true for a bucket that the user provided to the emulated Google Cloud. Any other emulated bucket holds
    only the files that this run has written there.
    """
    here = store()
    local = here.local(path) if here is not None else None
    if here is None or local is None:
        return is_remote(path) and _gives_no_answer(path)
    return not here.is_declared(path) and not local.exists()


@functools.lru_cache(maxsize=1024)
def _gives_no_answer(path: str) -> bool:
    """Asks the storage for a path, once per path because a client may retry for a long time."""
    import tensorflow as tf

    if mount := mount_of(path):
        return not os.path.isdir(mount)
    try:
        tf.io.gfile.exists(path)
    except (tf.errors.OpError, OSError):
        return True
    return False
