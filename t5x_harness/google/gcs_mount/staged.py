"""A file that is being written: seen through the mount at once, and in the store when it is closed."""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets
from typing import NamedTuple

from t5x_harness.google.storage.layout import StoreLayout


class FileGeneration(NamedTuple):
    """What tells one generation of a stored file from another, renamed ones too; times are in ns."""

    inode: int
    modified: int
    changed: int
    size: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileGeneration:
        return cls(found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)

    def is_of(self, found: os.stat_result) -> bool:
        return self == (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)

    def is_at(self, path: bytes) -> bool:
        """Returns whether a path has this one now."""
        try:
            return self.is_of(os.stat(path, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return False


@dataclasses.dataclass
class StagedContent:
    """A nameless file with the new content: nothing is left of it if this process is killed.

    Attributes:
      layout: of the store.
      dirty: whether there is something to store.
      shared: whether the content is that of the stored file itself, and must be copied before it changes.
    """

    layout: StoreLayout
    descriptor: int
    dirty: bool
    shared: bool = False

    @classmethod
    def empty(cls, layout: StoreLayout) -> StagedContent:
        """Returns a new file, or one that is truncated as it is opened: both are stored even if nothing is written."""
        return cls(layout, _nameless(layout), dirty=True)

    @classmethod
    def copy_of(cls, source: int, layout: StoreLayout) -> StagedContent:
        """Returns the content behind a descriptor, to be changed."""
        return cls(layout, _copied(source, layout), dirty=False)

    def write(self, data: memoryview, offset: int) -> int:
        """Writes at an offset in bytes; returns how many bytes were written."""
        self._prepare()
        return os.pwrite(self.descriptor, data, offset)

    def truncate(self, size: int) -> None:
        self._prepare()
        os.ftruncate(self.descriptor, size)

    def publish(self, path: bytes, base: FileGeneration | None) -> FileGeneration:
        """Puts the content into the store, whole and at once; needs the lock on the store's files.

        Args:
          base: what has to be there now, None for nothing.

        Returns:
          What is there afterwards.

        Raises:
          OSError: ESTALE if something else is there, or whatever the disk says; the content is still to be stored then.
        """
        if base is not None and not base.is_at(path):
            raise OSError(errno.ESTALE, "the object was replaced or deleted meanwhile")
        if base is None:
            try:
                self._link(path)
            except FileExistsError:
                raise OSError(errno.ESTALE, "the object was created meanwhile") from None
        else:
            # A link cannot take the place of a file, a rename can. What is left in between by a kill lies where the
            # store drops it when it is opened again.
            between = os.fsencode(self.layout.incoming_path(f"closing-{secrets.token_hex(8)}"))
            self._link(between)
            os.replace(between, path)
        self.dirty, self.shared = False, True
        return FileGeneration.of(os.fstat(self.descriptor))

    def _link(self, path: bytes) -> None:
        """Gives the content a name that no file has."""
        # Python follows the link only when it is given a folder's descriptor, which means nothing to a whole path.
        nameless = f"/proc/self/fd/{self.descriptor}"
        os.link(nameless, path, src_dir_fd=self.descriptor, follow_symlinks=True)

    def _prepare(self) -> None:
        if self.shared:
            old, self.descriptor = self.descriptor, _copied(self.descriptor, self.layout)
            os.close(old)
            self.shared = False
        self.dirty = True


def _nameless(layout: StoreLayout) -> int:
    return os.open(layout.incoming, os.O_TMPFILE | os.O_RDWR, 0o644)


def _copied(source: int, layout: StoreLayout) -> int:
    target = _nameless(layout)
    offset, size = 0, os.fstat(source).st_size
    while offset < size and (copied := os.copy_file_range(source, target, size - offset, offset, offset)):
        offset += copied  # nothing is copied when somebody cuts the source meanwhile
    return target
