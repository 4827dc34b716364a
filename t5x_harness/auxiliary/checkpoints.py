"""The finished checkpoints of a train job; one that is still being written is none."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator

from t5x_harness.buckets.addresses import GCS, GS
from t5x_harness.buckets.bucket_folder import COMMITTED
from t5x_harness.buckets.folders import AnyFolder

_FINISHED = re.compile(r"checkpoint_(\d+)")
_METADATA = "_CHECKPOINT_METADATA"


@dataclasses.dataclass(frozen=True)
class FinishedCheckpoint:
    """A finished checkpoint.

    Attributes:
      step: that it is of.
      by_orbax: whether orbax wrote it, and not T5X in its older layout.
    """

    step: int
    by_orbax: bool

    @property
    def name(self) -> str:
        """Its name in the train job's folder."""
        return f"checkpoint_{self.step}"


def finished_checkpoints(place: AnyFolder, given: str) -> list[FinishedCheckpoint]:
    """Returns the finished checkpoints of a train job, by step.

    On a file system a checkpoint has its name when it is finished: it is renamed then. In a bucket nothing can be
    renamed at once: orbax writes an object last; of what is copied there to its name, the source goes last.

    Args:
      place: the train job's folder.
      given: the same as the train job is given it, which says how it is written: ``gs://…`` or ``/gcs/…``.

    Raises:
      StorageError: the bucket is not there, or refuses.
    """
    return sorted(_finished(place, given), key=lambda checkpoint: checkpoint.step)


def _finished(place: AnyFolder, given: str) -> Iterator[FinishedCheckpoint]:
    names = place.children()
    for name in names:
        found = _FINISHED.fullmatch(name)
        if not found:
            continue
        held = set(place.children(name))
        being_renamed = any(other.startswith((f"{name}.tmp", f"{name}.orbax-checkpoint-tmp")) for other in names)
        by_t5x = "checkpoint" in held and not being_renamed
        by_orbax = COMMITTED in held
        if not place.address.startswith(GS):
            by_orbax = "state" in held
        elif given.startswith(GCS) and not by_orbax and "state" in held and not being_renamed:
            by_orbax = _is_committed(place, name)
        if by_t5x or by_orbax:
            yield FinishedCheckpoint(int(found[1]), by_orbax=not by_t5x)


def _is_committed(place: AnyFolder, name: str) -> bool:
    """Returns whether orbax's notes on a checkpoint say that it was committed: through a mount, no object says so."""
    found = place.read_version(f"{name}/{_METADATA}")
    try:
        return bool(found and json.loads(found[0]).get("commit_timestamp_nsecs"))
    except (ValueError, AttributeError):
        return False
