"""The files and folders that the kernel knows by a number, its open files, and the content that is being written."""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets
import stat
import struct
from typing import NamedTuple

from t5x_harness.google.storage.disk import StoreLayout

_ATTRIBUTES = struct.Struct("=3Q3q10I")  # a time before 1970 is negative
_ENTRY = struct.Struct("=4Q2I")
_ATTR_OUT = struct.Struct("=Q2I")


class Attributes(NamedTuple):
    """The attributes of a node: it belongs to this process's user, and its three times are the same, in nanoseconds."""

    node: int
    mode: int
    size: int
    modified: int

    def pack(self) -> bytes:
        """Packs a ``fuse_attr``."""
        seconds, rest = divmod(self.modified, 1_000_000_000)
        owner = self.mode, 1, os.getuid(), os.getgid()
        sizes = self.size, -(-self.size // 512)
        return _ATTRIBUTES.pack(self.node, *sizes, *[seconds] * 3, *[rest] * 3, *owner, 0, 1 << 12, 0)

    def as_entry(self) -> bytes:
        """Packs the answer to a lookup, which the kernel must not cache, because the store has other writers."""
        return _ENTRY.pack(self.node, 0, 0, 0, 0, 0) + self.pack()

    def as_answer(self) -> bytes:
        """Packs the answer to a request for attributes, which the kernel must not cache either."""
        return _ATTR_OUT.pack(0, 0, 0) + self.pack()


class FileGeneration(NamedTuple):
    """The values that differ between generations of stored files, including renamed ones; times are in nanoseconds."""

    inode: int
    modified: int
    changed: int
    size: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileGeneration:
        return cls(found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)

    def is_at(self, path: bytes) -> bool:
        """Tells whether a path has this generation now."""
        try:
            return self == FileGeneration.of(os.stat(path, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return False


class StagedContent:
    """A nameless file with the new content: nothing is left of it if this process is killed.

    It begins with the content of a descriptor. Without one, it is for a new or truncated file, which is stored even
    if nothing is written.
    """

    def __init__(self, layout: StoreLayout, source: int | None = None) -> None:
        self._layout = layout
        self.descriptor = self._copied(source)
        self.dirty = source is None
        self._shared = False  # whether the stored file has the same content, which must be copied before it changes

    def write(self, data: memoryview, offset: int) -> int:
        """Writes at an offset in bytes; returns the number of written bytes."""
        self._prepare()
        return os.pwrite(self.descriptor, data, offset)

    def truncate(self, size: int) -> None:
        self._prepare()
        os.ftruncate(self.descriptor, size)

    def publish(self, path: bytes, base: FileGeneration | None) -> FileGeneration:
        """Puts the content into the store atomically, and returns the generation; needs the lock on the files.

        The file has to have the generation ``base`` now; None means that it does not exist.

        Raises:
          OSError: ESTALE if the file has another generation, or an error of the disk; the content is still not stored.
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
            between = os.fsencode(f"{self._layout.incoming}/closing-{secrets.token_hex(8)}")
            self._link(between)
            os.replace(between, path)
        self.dirty, self._shared = False, True
        return FileGeneration.of(os.fstat(self.descriptor))

    def _link(self, path: bytes) -> None:
        """Links the content to a new name."""
        # Python follows the link only if it is given a folder's descriptor, which an absolute path ignores.
        nameless = f"/proc/self/fd/{self.descriptor}"
        os.link(nameless, path, src_dir_fd=self.descriptor, follow_symlinks=True)

    def _prepare(self) -> None:
        if self._shared:
            old, self.descriptor = self.descriptor, self._copied(self.descriptor)
            os.close(old)
            self._shared = False
        self.dirty = True

    def _copied(self, source: int | None) -> int:
        target = os.open(self._layout.incoming, os.O_TMPFILE | os.O_RDWR, 0o644)
        if source is None:
            return target
        offset, size = 0, os.fstat(source).st_size
        while offset < size and (copied := os.copy_file_range(source, target, size - offset, offset, offset)):
            offset += copied  # nothing is copied if the source is truncated meanwhile
        return target


@dataclasses.dataclass(eq=False)
class Node:
    """A folder, or one generation of a file, that the kernel knows by a number.

    The kernel caches the pages of a file by this number for all processes, so generations must not share it.
    """

    number: int
    path: bytes  # below the mount; empty for the root, bucket/a/b otherwise
    folder: bool
    generation: FileGeneration | None = None  # of the stored file; None for a folder, or a file that is not stored yet
    lookups: int = 0  # how often the kernel has looked it up; at 0 it is forgotten
    staged: StagedContent | None = None  # the content while it is open for writing
    content: int | None = None  # a descriptor of the content while it is open only for reading
    writers: int = 0  # handles that are open for writing
    readers: int = 0  # handles that are open only for reading
    removed: bool = False  # whether it was removed while open, so that further writes are lost

    @property
    def unsaved(self) -> bool:
        """Whether it has content that this mount shows, and the store does not have yet."""
        return self.staged is not None and self.staged.dirty

    def is_of(self, found: os.stat_result) -> bool:
        """Tells whether a file or folder of the tree is this node's."""
        if stat.S_ISDIR(found.st_mode) or self.folder:
            return self.folder and stat.S_ISDIR(found.st_mode)
        return self.generation == FileGeneration.of(found)


@dataclasses.dataclass(eq=False)
class Handle:
    """An open file."""

    node: Node
    writes: bool
