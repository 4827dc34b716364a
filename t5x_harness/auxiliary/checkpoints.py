"""The finished checkpoints of a train job, without those that are still being written."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator

from t5x_harness.buckets.addresses import GCS, GS
from t5x_harness.buckets.folders import COMMITTED, AnyFolder

_FINISHED = re.compile(r"checkpoint_(\d+)")
_METADATA = "_CHECKPOINT_METADATA"


@dataclasses.dataclass(frozen=True)
class FinishedCheckpoint:
    """A finished checkpoint.

    Attributes:
      step: the train step.
      by_orbax: whether orbax wrote it, rather than T5X in its older layout.
    """

    step: int
    by_orbax: bool

    @property
    def name(self) -> str:
        """Its name in the train job's folder."""
        return f"checkpoint_{self.step}"


def finished_checkpoints(place: AnyFolder, given: str) -> list[FinishedCheckpoint]:
    """Returns the finished checkpoints of a train job, by step.

    On a file system, a checkpoint gets its name by being renamed when it is finished. In a bucket nothing can be
    renamed at once: orbax writes a certain object last, and a checkpoint that is copied to its name loses its source
    last.

    Args:
      place: the train job's folder.
      given: the folder as the train job names it, ``gs://…`` or ``/gcs/…``, which decides how it is written.

    Raises:
      StorageError: the bucket does not exist, or access is refused.
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
    """Checks orbax's metadata for a commit: a checkpoint written through a mount has no object that marks it."""
    found = place.read_version(f"{name}/{_METADATA}")
    try:
        return bool(found and json.loads(found[0]).get("commit_timestamp_nsecs"))
    except (ValueError, AttributeError):
        return False
