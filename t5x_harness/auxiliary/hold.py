"""Holds checkpoints, so that a train job with ``keep`` does not remove them under the jobs that read them.

What keeps one depends on who removes it. T5X's older layout leaves a checkpoint alone in which there is a file PINNED.
Orbax knows no such file, and so the jobs get a copy: links on a file system, which take no room, objects in a bucket.
"""

from __future__ import annotations

from t5x_harness.auxiliary.checkpoints import Checkpoint
from t5x_harness.auxiliary.jobs import FOLDER
from t5x_harness.auxiliary.place import Place

_PINNED = "PINNED"
_MARK = b"held by t5x-harness for auxiliary jobs\n"
_HOLDERS = f"{FOLDER}/holders"


class Holds:
    """The checkpoints that one request holds; several requests may hold the same one.

    Args:
      place: the train job's folder.
      holder: the name of the request.
    """

    def __init__(self, place: Place, holder: str) -> None:
        self._place = place
        self._holder = holder
        self._copies = f"{FOLDER}/{holder}/held"

    def held(self) -> list[int]:
        """Returns the steps of the checkpoints that this request holds."""
        names = self._place.children(_HOLDERS)
        steps = [name for name in names if self._holder in self._place.children(f"{_HOLDERS}/{name}")]
        return sorted(int(name.removeprefix("checkpoint_")) for name in steps)

    def take(self, checkpoint: Checkpoint) -> bool:
        """Holds a checkpoint, which may be held already; returns whether it was still there."""
        name = checkpoint.name
        self._place.create(f"{_HOLDERS}/{name}/{self._holder}", b"")
        if not checkpoint.by_orbax:
            if "checkpoint" in self._place.children(name):
                self._place.create(f"{name}/{_PINNED}", _MARK)
            if "checkpoint" in self._place.children(name):  # still, now that it is marked
                return True
        elif name in self._place.children(self._copies) or self._place.copy(name, f"{self._copies}/{name}"):
            return True
        self.release(checkpoint.step)
        return False

    def name_of(self, step: int) -> str:
        """Returns where in the train job's folder the jobs find a checkpoint: its own name, or that of its copy."""
        name = f"checkpoint_{step}"
        return f"{self._copies}/{name}" if name in self._place.children(self._copies) else name

    def release(self, step: int) -> None:
        """Lets a checkpoint go: the copy is removed, and the mark when no request holds it any more.

        A file PINNED that somebody else has put there stays.
        """
        name = f"checkpoint_{step}"
        self._place.delete(f"{self._copies}/{name}")
        self._place.delete(f"{_HOLDERS}/{name}/{self._holder}")
        if self._place.children(f"{_HOLDERS}/{name}"):
            return
        found = self._place.read(f"{name}/{_PINNED}")
        if found is not None and found[0] == _MARK:
            self._place.delete(f"{name}/{_PINNED}")
        if self._place.children(f"{_HOLDERS}/{name}") and found is not None:  # another request came meanwhile
            self._place.create(f"{name}/{_PINNED}", _MARK)
