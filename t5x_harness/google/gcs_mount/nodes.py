"""The files and folders that the kernel knows by a number, and its open files."""

from __future__ import annotations

import dataclasses
import os
import stat

from t5x_harness.google.gcs_mount.staged import FileGeneration, StagedContent


@dataclasses.dataclass(eq=False)
class Node:
    """A folder, or one generation of a file, that the kernel knows by a number.

    The kernel caches the pages of a file by this number for all processes, so generations must not share it.

    Attributes:
      number: the kernel's number.
      path: the path below the mount; empty for the root, ``bucket/a/b`` otherwise.
      folder: whether it is a folder.
      generation: the generation of the stored file; None for a folder, and for a file that was not stored yet.
      lookups: how often the kernel has looked it up; at 0 it is forgotten.
      staged: its content while it is open for writing.
      content: a descriptor of its content while it is open only for reading.
      writers: the number of handles that are open for writing.
      readers: the number of handles that are open only for reading.
      removed: whether it was removed while open, so that further writes are lost.
    """

    number: int
    path: bytes
    folder: bool
    generation: FileGeneration | None = None
    lookups: int = 0
    staged: StagedContent | None = None
    content: int | None = None
    writers: int = 0
    readers: int = 0
    removed: bool = False

    @property
    def unsaved(self) -> bool:
        """Whether it has content that this mount shows, and the store does not have yet."""
        return self.staged is not None and self.staged.dirty

    def is_of(self, found: os.stat_result) -> bool:
        """Tells whether this node is what the tree has."""
        if stat.S_ISDIR(found.st_mode) or self.folder:
            return self.folder and stat.S_ISDIR(found.st_mode)
        return self.generation is not None and self.generation.is_of(found)


@dataclasses.dataclass(eq=False)
class Handle:
    """An open file."""

    node: Node
    writes: bool
