"""Says that there is no bucket of some name: TensorFlow asks for it for ever, and tells nobody."""

from __future__ import annotations

import collections
import shlex
import shutil
import sys
from pathlib import Path

__all__ = ["MissingBuckets"]

_TIMES = 3
"""So often programs ask that only look whether there is one."""


class MissingBuckets:
    """Counts the requests for each bucket that is not there.

    Args:
      folder: that has a folder for each bucket.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: collections.Counter[str] = collections.Counter()

    def note(self, bucket: str) -> None:
        """Takes note of a request, and says so on standard error if it is not one of a program that only looks."""
        self._asked[bucket] += 1
        if self._asked[bucket] == _TIMES:
            print(
                f"t5x-harness: there is no bucket {bucket!r}, which was asked for {_TIMES} times; some programs ask "
                f"again for ever. Make it: {self._command(bucket)}, or have all buckets made: --create-buckets of "
                "exec and serve",
                file=sys.stderr,
                flush=True,
            )

    def _command(self, bucket: str) -> str:
        if shutil.which("gcloud"):
            return f"gcloud storage buckets create gs://{shlex.quote(bucket)}"
        return f"mkdir {shlex.quote(str(self._folder / bucket))}"
