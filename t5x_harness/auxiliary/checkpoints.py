"""Holds that keep a train job from removing the checkpoints that jobs read.

How a checkpoint is held depends on what would remove it. T5X's older layout never removes a checkpoint with a file
named PINNED. Orbax has no such file, so the jobs get a copy: links on a file system, which take no space, or objects in
a bucket.

In a bucket, the jobs always get a copy. When orbax restores a checkpoint from a bucket, it removes every folder next to
it or in it that lacks the object that commits a checkpoint: results, and a checkpoint that is still being written.
"""

from t5x_harness.auxiliary.jobs import FOLDER
from t5x_harness.buckets.addresses import GS
from t5x_harness.buckets.checkpoints import FinishedCheckpoint
from t5x_harness.buckets.folders import COMMITTED, AnyFolder

_PINNED = "PINNED"
_MARK = b"held by t5x-harness for auxiliary jobs\n"
_HOLDERS = f"{FOLDER}/holders"


class Holds:
    """The checkpoints that one request holds; several requests may hold the same one.

    Args:
      place: the train job's folder.
      holder: the name of the request.

    Attributes:
      in_bucket: whether checkpoints have to be held even if the train job removes none.
    """

    def __init__(self, place: AnyFolder, holder: str) -> None:
        self._place = place
        self._holder = holder
        self.in_bucket = place.address.startswith(GS)

    def held(self) -> list[int]:
        """Returns the steps of the checkpoints that this request holds."""
        names = self._place.children(_HOLDERS)
        steps = [name for name in names if self._holder in self._place.children(f"{_HOLDERS}/{name}")]
        return sorted(int(name.removeprefix("checkpoint_")) for name in steps)

    def take(self, checkpoint: FinishedCheckpoint) -> bool:
        """Holds a checkpoint, which may already be held, and returns whether it still existed."""
        name = f"checkpoint_{checkpoint.step}"
        self._place.create(f"{_HOLDERS}/{name}/{self._holder}", b"")
        if not (checkpoint.by_orbax or self.in_bucket):
            if "checkpoint" in self._place.children(name):
                self._place.create(f"{name}/{_PINNED}", _MARK)
            if "checkpoint" in self._place.children(name):  # it still exists now that it is marked
                return True
        elif self._is_copied(checkpoint.step) or self._place.copy(name, self._copy_of(checkpoint.step)):
            return True
        self.release(checkpoint.step)
        return False

    def name_of(self, step: int) -> str:
        """Returns the name in the train job's folder by which jobs find a checkpoint: its own name or its copy's."""
        return self._copy_of(step) if self._is_copied(step) else f"checkpoint_{step}"

    def release(self, step: int) -> None:
        """Releases a checkpoint: removes the copy, and the mark once no request holds the checkpoint.

        A PINNED file that somebody else created is kept.
        """
        name = f"checkpoint_{step}"
        self._place.delete(self._copy_of(step).rpartition("/")[0])
        self._place.delete(f"{_HOLDERS}/{name}/{self._holder}")
        if self._place.children(f"{_HOLDERS}/{name}"):
            return
        found = self._place.read_version(f"{name}/{_PINNED}")
        if found is not None and found[0] == _MARK:
            self._place.delete(f"{name}/{_PINNED}")
        if self._place.children(f"{_HOLDERS}/{name}") and found is not None:  # another request has come in the meantime
            self._place.create(f"{name}/{_PINNED}", _MARK)

    def _copy_of(self, step: int) -> str:
        """Returns the place of a copy, which has its own folder, as orbax may remove neighbors of a checkpoint."""
        return f"{FOLDER}/{self._holder}/held/{step}/checkpoint_{step}"

    def _is_copied(self, step: int) -> bool:
        """Returns whether there is a complete copy."""
        names = self._place.children(self._copy_of(step))
        return bool(names) and (not self.in_bucket or COMMITTED in names or "checkpoint" in names)
