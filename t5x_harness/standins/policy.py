"""When a stand-in takes the place of what a config names."""

from __future__ import annotations

import enum

from t5x_harness.system.buckets import is_remote, is_unreachable

__all__ = ["Policy"]


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
