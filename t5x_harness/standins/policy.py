"""When a stand-in takes the place of what a config names."""

from __future__ import annotations

import enum
import functools
import os

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


@functools.lru_cache(maxsize=1024)
def is_unreachable(path: str) -> bool:
    """Whether the place that a remote path lies in cannot be seen from here.

    A bucket that answers that it has no such file is within reach: the path is wrong, and that error is the user's.
    Asked once for each path, as a client may try for long.
    """
    import tensorflow as tf

    if path.startswith(_MOUNT):
        return not os.path.isdir(os.path.join(_MOUNT, path.removeprefix(_MOUNT).partition(os.sep)[0]))
    try:
        tf.io.gfile.exists(path)
    except (tf.errors.OpError, OSError):
        return True
    return False
