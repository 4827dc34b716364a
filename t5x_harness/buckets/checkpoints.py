"""Which checkpoints in a folder were written to their end."""

import dataclasses
import json
import re

from t5x_harness.buckets.addresses import GCS, GS
from t5x_harness.buckets.folders import COMMITTED, AnyFolder

_FINISHED = re.compile(r"checkpoint_(\d+)")
_METADATA = "_CHECKPOINT_METADATA"


@dataclasses.dataclass(frozen=True)
class FinishedCheckpoint:
    """A finished checkpoint.

    Attributes:
      step: the train step.
      by_orbax: whether orbax wrote it, instead of T5X in its older layout.
    """

    step: int
    by_orbax: bool


def finished_checkpoints(place: AnyFolder, given: str, *, in_bucket: bool | None = None) -> list[FinishedCheckpoint]:
    """Returns the finished checkpoints of a train job, by step.

    On a file system, a checkpoint is renamed to its final name when it is finished. In a bucket, nothing can be
    renamed at once: orbax writes a certain object last, and if a checkpoint is copied to its name, its source is
    removed last.

    Args:
      place: the train job's folder.
      given: the folder as the train job names it, ``gs://…`` or ``/gcs/…``, which determines how it is written.
      in_bucket: whether it is in a bucket; None to see that from the folder's address. The emulated Google Cloud keeps
        its buckets in folders of this machine.

    Raises:
      StorageError: the bucket does not exist, or access is refused.
    """
    in_bucket = place.address.startswith(GS) if in_bucket is None else in_bucket
    finished, names = [], place.children()
    for name in names:
        if not (found := _FINISHED.fullmatch(name)):
            continue
        held = set(place.children(name))
        being_renamed = any(other.startswith((f"{name}.tmp", f"{name}.orbax-checkpoint-tmp")) for other in names)
        by_t5x = "checkpoint" in held and not being_renamed
        # Another job in the folder may have had orbax remove the arrays before this file was written.
        by_orbax = COMMITTED in held and "state" in held
        if not in_bucket:
            by_orbax = "state" in held
        elif given.startswith(GCS) and not by_orbax and "state" in held and not being_renamed:
            by_orbax = is_committed(place, name)
        if by_t5x or by_orbax:
            finished.append(FinishedCheckpoint(int(found[1]), by_orbax=not by_t5x))
    return sorted(finished, key=lambda checkpoint: checkpoint.step)


def is_committed(place: AnyFolder, name: str) -> bool:
    """Returns whether orbax's metadata marks a commit; a checkpoint written through a mount has no object that does."""
    found = place.read_version(f"{name}/{_METADATA}")
    try:
        return bool(found and json.loads(found[0]).get("commit_timestamp_nsecs"))
    except (ValueError, AttributeError):
        return False
