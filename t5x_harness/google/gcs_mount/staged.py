"""A file that is being written: seen through the mount at once, and in the store when it is closed."""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets

from t5x_harness.google.storage.locking import changing_files

Identity = tuple[int, int, int]


def identity(path: bytes) -> Identity | None:
    """Returns what tells one state of a file from another: inode, time of change in ns, size.

    None if there is no such file.
    """
    try:
        return _identity_of(os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _identity_of(found: os.stat_result) -> Identity:
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclasses.dataclass
class StagedFile:
    """A nameless file with the new content: nothing is left of it if this process is killed.

    Attributes:
      folder: where it lies: the store's root.
      base: the state of the stored file that this content goes back to; None for a new file.
      dirty: whether there is something to store.
      shared: whether the content is that of the stored file itself, and must be copied before it changes.
    """

    folder: str
    descriptor: int
    base: Identity | None
    dirty: bool
    shared: bool = False

    @classmethod
    def empty(cls, folder: str, base: Identity | None) -> StagedFile:
        """Returns a new file, or one that is truncated as it is opened: both are stored even if nothing is written."""
        return cls(folder, _nameless(folder), base, dirty=True)

    @classmethod
    def copy_of(cls, path: bytes, folder: str) -> StagedFile:
        """Returns the stored file's content, to be changed."""
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            # Of what is copied: the name may be another file's by now.
            base = _identity_of(os.fstat(source))
            return cls(folder, _copied(source, folder), base, dirty=False)
        finally:
            os.close(source)

    def write(self, data: memoryview, offset: int) -> int:
        """Writes at an offset in bytes; returns how many bytes were written."""
        self._prepare()
        return os.pwrite(self.descriptor, data, offset)

    def truncate(self, size: int) -> None:
        self._prepare()
        os.ftruncate(self.descriptor, size)

    def set_modified(self, nanoseconds: int) -> None:
        """Sets the time of change, of the stored file too where the content is its own."""
        os.utime(self.descriptor, ns=(nanoseconds, nanoseconds))
        if self.shared:
            self.base = _identity_of(os.fstat(self.descriptor))

    def publish(self, path: bytes) -> None:
        """Puts the content into the store, whole and at once; raises OSError (ESTALE) if another file is there."""
        if not self.dirty:
            return
        with changing_files(self.folder):
            self._put(path)
        self.base, self.dirty, self.shared = _identity_of(os.fstat(self.descriptor)), False, True

    def _put(self, path: bytes) -> None:
        if identity(path) != self.base:
            raise OSError(errno.ESTALE, "the object was replaced or deleted meanwhile")
        if self.base is None:
            try:
                self._link(path)
            except FileExistsError:
                raise OSError(errno.ESTALE, "the object was created meanwhile") from None
        else:
            # A link cannot take the place of a file, a rename can; the name in between lives for microseconds.
            between = os.fsencode(os.path.join(self.folder, f".closing-{secrets.token_hex(8)}"))
            self._link(between)
            os.replace(between, path)

    def _link(self, path: bytes) -> None:
        """Gives the content a name that no file has."""
        # Python follows the link only when it is given a folder's descriptor, which means nothing to a whole path.
        nameless = f"/proc/self/fd/{self.descriptor}"
        os.link(nameless, path, src_dir_fd=self.descriptor, follow_symlinks=True)

    def close(self) -> None:
        os.close(self.descriptor)

    def _prepare(self) -> None:
        if self.shared:
            old, self.descriptor = self.descriptor, _copied(self.descriptor, self.folder)
            os.close(old)
            self.shared = False
        self.dirty = True


def _nameless(folder: str) -> int:
    return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644)


def _copied(source: int, folder: str) -> int:
    target = _nameless(folder)
    offset, size = 0, os.fstat(source).st_size
    while offset < size and (copied := os.copy_file_range(source, target, size - offset, offset, offset)):
        offset += copied  # nothing is copied when somebody cuts the source meanwhile
    return target
