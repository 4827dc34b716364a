"""The content of a file that is being written: visible at the mount at once, and in the store when it is closed."""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets
from typing import NamedTuple

from t5x_harness.google.storage.layout import StoreLayout


class FileGeneration(NamedTuple):
    """The values that differ between generations of stored files, renamed ones included; times are in nanoseconds."""

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
        """Tells whether a path has this generation now."""
        try:
            return self.is_of(os.stat(path, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return False


@dataclasses.dataclass
class StagedContent:
    """A nameless file with the new content: nothing is left of it if this process is killed.

    Attributes:
      layout: the paths of the store.
      descriptor: the open file.
      dirty: whether the content is not stored yet.
      shared: whether the stored file has the same content, which must be copied before it changes.
    """

    layout: StoreLayout
    descriptor: int
    dirty: bool
    shared: bool = False

    @classmethod
    def empty(cls, layout: StoreLayout) -> StagedContent:
        """Returns the content of a new or truncated file, which is stored even if nothing is written."""
        return cls(layout, _nameless(layout), dirty=True)

    @classmethod
    def copy_of(cls, source: int, layout: StoreLayout) -> StagedContent:
        """Returns a copy of the content behind a descriptor."""
        return cls(layout, _copied(source, layout), dirty=False)

    def write(self, data: memoryview, offset: int) -> int:
        """Writes at an offset in bytes; returns the number of written bytes."""
        self._prepare()
        return os.pwrite(self.descriptor, data, offset)

    def truncate(self, size: int) -> None:
        self._prepare()
        os.ftruncate(self.descriptor, size)

    def publish(self, path: bytes, base: FileGeneration | None) -> FileGeneration:
        """Puts the content into the store atomically; needs the lock on the store's files.

        Args:
          path: the path of the stored file.
          base: the generation that must be there now; None for no file.

        Returns:
          The new generation.

        Raises:
          OSError: ESTALE if there is another generation, or an error of the disk; the content is still not stored.
        """
        if base is not None and not base.is_at(path):
            raise OSError(errno.ESTALE, "the object was replaced or deleted meanwhile")
        if base is None:
            try:
                self._link(path)
            except FileExistsError:
                raise OSError(errno.ESTALE, "the object was created meanwhile") from None
        else:
            # A rename, unlike a link, can replace a file. After a kill in between, the store drops the incoming file
            # when it is opened again.
            between = os.fsencode(self.layout.incoming_path(f"closing-{secrets.token_hex(8)}"))
            self._link(between)
            os.replace(between, path)
        self.dirty, self.shared = False, True
        return FileGeneration.of(os.fstat(self.descriptor))

    def _link(self, path: bytes) -> None:
        """Gives the content a new name."""
        # Python follows the link only if it is given a folder's descriptor, which an absolute path ignores.
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
        offset += copied  # nothing is copied if the source is truncated meanwhile
    return target
