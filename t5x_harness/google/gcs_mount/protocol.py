"""The messages of ``/dev/fuse``, with which the kernel asks a process about a file system (linux/fuse.h)."""

from __future__ import annotations

import enum
import errno
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

MAX_WRITE = 1 << 20
"""The most bytes that the kernel may send in one write, as in gcsfuse."""

_IN_HEADER = struct.Struct("=IIQQIIIHH")
_OUT_HEADER = struct.Struct("=IiQ")
_ATTRIBUTES = struct.Struct("=3Q3q10I")  # a time before 1970 is negative
_ENTRY = struct.Struct("=4Q2I")
_ATTR_OUT = struct.Struct("=Q2I")
_INIT_IN = struct.Struct("=4I")
_INIT_OUT = struct.Struct("=4I2H2I2H8I")
_DIRENT = struct.Struct("=2Q2I")
_STATFS = struct.Struct("=5Q10I")

_MAJOR, _MINOR = 7, 31
# Opening may truncate; writes of more than a page; requests of more than 32 pages.
_ATOMIC_TRUNCATE, _BIG_WRITES, _MAX_PAGES = 1 << 3, 1 << 5, 1 << 22
_DIRECTORY, _REGULAR = 4, 8


class Operation(enum.IntEnum):
    """The requests that are answered; any other request is answered with ENOSYS."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    CREATE = 35
    DESTROY = 38
    BATCH_FORGET = 42


class FuseRequest(NamedTuple):
    """One request: its operation as a number, the id for its answer, its node, and its body."""

    operation: int
    unique: int
    node: int
    body: memoryview

    def unpack(self, layout: str) -> tuple[int, ...]:
        """Returns the fields at the start of the body."""
        return struct.unpack_from(f"={layout}", self.body)

    def names(self, offset: int = 0) -> list[bytes]:
        """Returns the names, each ended by a zero, that follow the fields."""
        return bytes(self.body[offset:]).split(b"\0")[:-1]


class Attributes(NamedTuple):
    """The attributes of a node, whose owner is that of this process and whose three times are one, in nanoseconds."""

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


def read_request(device: int) -> FuseRequest | None:
    """Waits for the next request; returns None when the file system is unmounted or its last process has ended."""
    while True:
        try:
            message = os.read(device, MAX_WRITE + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):  # the request was withdrawn meanwhile
                continue
            raise
        _, operation, unique, node, *_ = _IN_HEADER.unpack_from(message)
        return FuseRequest(operation, unique, node, memoryview(message)[_IN_HEADER.size :])


def reply(device: int, unique: int, content: bytes = b"", *, error: int = 0) -> None:
    header = _OUT_HEADER.pack(_OUT_HEADER.size + len(content), -error, unique)
    try:
        os.writev(device, [header, content] if content else [header])
    except OSError as failure:
        if failure.errno not in (errno.ENOENT, errno.ENODEV):  # no process waits for it any more
            raise


def init_answer(body: memoryview) -> bytes:
    """Returns the answer to the first request, which settles version and sizes."""
    _, _, readahead, offered = _INIT_IN.unpack_from(body)
    flags = offered & (_ATOMIC_TRUNCATE | _BIG_WRITES | _MAX_PAGES)
    pages = MAX_WRITE // 4096
    return _INIT_OUT.pack(_MAJOR, _MINOR, readahead, flags, 16, 12, MAX_WRITE, 1, pages, 0, *[0] * 8)


def directory_entries(entries: Iterable[tuple[bytes, bool]], offset: int, limit: int) -> bytes:
    """Packs as many (name, is a directory) from ``offset`` on as fit into ``limit`` bytes."""
    packed = bytearray()
    for index, (name, is_directory) in enumerate(entries):
        if index < offset:
            continue
        kind = _DIRECTORY if is_directory else _REGULAR
        entry = _DIRENT.pack(0xFFFF_FFFF, index + 1, len(name), kind) + name
        entry += b"\0" * (-len(entry) % 8)
        if len(packed) + len(entry) > limit:
            break
        packed += entry
    return bytes(packed)


def endless_space() -> bytes:
    """Answers statfs as gcsfuse does: a bucket is never full."""
    blocks, inodes = 1 << 33, 1 << 50
    return _STATFS.pack(blocks, blocks, blocks, inodes, inodes, 1 << 17, 255, 1 << 17, *[0] * 7)
