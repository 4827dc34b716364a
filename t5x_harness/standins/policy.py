"""When a stand-in takes the place of what a config names."""

from __future__ import annotations

import enum
import functools
import os

from t5x_harness.system.buckets import store

__all__ = ["Policy", "is_remote", "is_unreachable"]

_MOUNT = f"{os.sep}gcs{os.sep}"
"""Where Vertex AI mounts buckets."""


class Policy(enum.StrEnum):
    """For what stand-ins are made.

    ``OFF``: for nothing; what cannot be reached fails as it does in T5X.
    ``MISSING``: for what cannot be reached from here.
    ``ALL``: for everything in a bucket or on a hub, within reach or not: the run is the same on every machine.
    """

    OFF = "off"
    MISSING = "missing"
    ALL = "all"

    def replaces(self, path: str) -> bool:
        """Whether a stand-in takes the place of the file or folder at ``path``."""
        if self is Policy.OFF or not is_remote(path):
            return False
        return self is Policy.ALL or is_unreachable(path)


def is_remote(path: str) -> bool:
    """Whether a path lies in a bucket: by its address, or where Vertex AI mounts it."""
    return "://" in path or path.startswith(_MOUNT)


def is_unreachable(path: str) -> bool:
    """Whether the place that a remote path lies in cannot be seen from here.

    A bucket that answers that it has no such file is within reach: the path is wrong, and that error is the user's.
    So is a bucket that the user gave to the private Google; of any other, that has only what this run put into it.
    """
    here = store()
    local = here.local(path) if here is not None else None
    if here is None or local is None:
        return _cannot_be_asked(path)
    return not here.is_declared(path) and not local.exists()


@functools.lru_cache(maxsize=1024)
def _cannot_be_asked(path: str) -> bool:
    """Asks whoever has the path, once for each: a client may try for long."""
    import tensorflow as tf

    if path.startswith(_MOUNT):
        return not os.path.isdir(os.path.join(_MOUNT, path.removeprefix(_MOUNT).partition(os.sep)[0]))
    try:
        tf.io.gfile.exists(path)
    except (tf.errors.OpError, OSError):
        return True
    return False
