"""The process behind a mount in the mode ``fuse``, and the messages that the kernel sends it (linux/fuse.h)."""

import contextlib
import enum
import errno
import itertools
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from t5x_harness.google.gcs_mount.filesystem import FileSystem
from t5x_harness.google.gcs_mount.namespace import NamespaceRefused, mount
from t5x_harness.google.gcs_mount.nodes import Handle, Node
from t5x_harness.system.processes import side_process

MAX_WRITE = 1 << 20
"""The maximum number of bytes that the kernel may send in one write, the same as in gcsfuse."""

_IN_HEADER = struct.Struct("=IIQQIIIHH")
_OUT_HEADER = struct.Struct("=IiQ")
_INIT_IN = struct.Struct("=4I")
_INIT_OUT = struct.Struct("=4I2H2I2H8I")
_DIRENT = struct.Struct("=2Q2I")
_STATFS = struct.Struct("=5Q10I")
# The answer to statfs is that of gcsfuse: a bucket is never full.
_ENDLESS_SPACE = _STATFS.pack(1 << 33, 1 << 33, 1 << 33, 1 << 50, 1 << 50, 1 << 17, 255, 1 << 17, *[0] * 7)

_MAJOR, _MINOR = 7, 31
# Features: opening may truncate, writes of more than a page, and requests of more than 32 pages.
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
        if failure.errno not in (errno.ENOENT, errno.ENODEV):  # no process waits for it any longer
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


_DEVICE = "/dev/fuse"
# The used fields of setattr: size, modification time, and modification time now.
_SIZE, _MODIFIED, _MODIFIED_NOW = 1 << 3, 1 << 5, 1 << 8


@contextlib.contextmanager
def start_server(root: str | os.PathLike[str]) -> Iterator[Callable[[str], None]]:
    """Starts the server of a store, outside of the namespace that it will serve.

    The calling process must have a single thread; see :func:`side_process`.

    Yields:
      A function that mounts the file system at a path of this process's mount namespace; it raises NamespaceRefused if
      that fails.

    Raises:
      NamespaceRefused: the file system of the store's folder has no unnamed files.
    """
    folder = os.path.abspath(root)
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
    except OSError as error:
        raise NamespaceRefused(f"files without a name (O_TMPFILE) in {folder}: {error.strerror}") from None

    def serve(device: int) -> None:
        FuseServer(device, FileSystem(folder)).serve()

    def mount_at(target: str) -> None:
        try:
            device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise NamespaceRefused(f"opening {_DEVICE}: {error.strerror}") from None
        options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()}"
        mount("gcsfuse", target, "fuse.gcsfuse", 0, f"{options},default_permissions,allow_other")
        hand_over(device)

    with side_process("gcsfuse", serve) as hand_over:
        yield mount_at


class FuseServer:
    """Answers requests one after another, because only the disk makes it wait."""

    def __init__(self, device: int, files: FileSystem) -> None:
        self._device = device
        self._files = files
        self._handles: dict[int, Handle] = {}
        # The content of each folder when its reading began, so that offsets stay valid after removals.
        self._listings: dict[int, list[tuple[bytes, bool]]] = {}
        self._numbers = itertools.count(1)
        # An answer of None has no content.
        self._answers: dict[int, Callable[[FuseRequest], bytes | None]] = {
            Operation.INIT: lambda r: init_answer(r.body),
            Operation.LOOKUP: lambda r: self._entry(files.look_up(self._node(r), r.names()[0])),
            Operation.FORGET: lambda r: files.forget(r.node, *r.unpack("Q")),
            Operation.BATCH_FORGET: self._forget_many,
            Operation.GETATTR: lambda r: files.attributes(self._node(r)).as_answer(),
            Operation.SETATTR: self._set_attributes,
            Operation.MKDIR: lambda r: self._entry(files.make_folder(self._node(r), r.names(8)[0])),
            Operation.SYMLINK: self._refuse,
            Operation.MKNOD: self._refuse,
            Operation.UNLINK: lambda r: files.remove_file(self._node(r), r.names()[0]),
            Operation.RMDIR: lambda r: files.remove_folder(self._node(r), r.names()[0]),
            Operation.RENAME: self._rename,
            Operation.CREATE: self._create,
            Operation.OPEN: lambda r: self._opened(files.open(self._node(r), r.unpack("I")[0])),
            Operation.READ: self._read,
            Operation.WRITE: self._write,
            Operation.FLUSH: lambda r: files.flush(self._handles[r.unpack("Q")[0]].node),
            Operation.FSYNC: lambda r: files.flush(self._handles[r.unpack("Q")[0]].node),
            Operation.RELEASE: lambda r: files.release(self._handles.pop(r.unpack("Q")[0])),
            Operation.OPENDIR: lambda r: next(self._numbers).to_bytes(16, "little"),
            Operation.READDIR: self._list,
            Operation.RELEASEDIR: self._close_folder,
            Operation.STATFS: lambda r: _ENDLESS_SPACE,
            Operation.DESTROY: lambda r: None,
        }

    def serve(self) -> None:
        """Answers requests until the mount is gone."""
        while (request := read_request(self._device)) is not None:
            try:
                found = self.answer(request)
            except OSError as error:
                reply(self._device, request.unique, error=error.errno or errno.EIO)
            else:
                if request.operation not in (Operation.FORGET, Operation.BATCH_FORGET):  # the kernel expects no answer
                    reply(self._device, request.unique, found)

    def answer(self, request: FuseRequest) -> bytes:
        """Returns the answer to a request; an OSError has the number to answer."""
        answer = self._answers.get(request.operation)
        if answer is None:
            raise OSError(errno.ENOSYS, "not emulated")
        return answer(request) or b""

    def _node(self, r: FuseRequest) -> Node:
        return self._files.nodes[r.node]

    def _entry(self, node: Node) -> bytes:
        return self._files.tell(node).as_entry()

    def _opened(self, handle: Handle) -> bytes:
        number = next(self._numbers)
        self._handles[number] = handle
        return number.to_bytes(16, "little")

    def _forget_many(self, r: FuseRequest) -> None:
        count, _ = r.unpack("II")
        for index in range(count):
            self._files.forget(*r.unpack(f"{8 + 16 * index}xQQ"))

    def _set_attributes(self, r: FuseRequest) -> bytes:
        valid, _, _, size, _, _, seconds, _, _, nanoseconds = r.unpack("IIQQQqqqII")
        node = self._node(r)
        if valid & _SIZE:
            self._files.resize(node, size)
        if valid & _MODIFIED and not valid & _MODIFIED_NOW:
            self._files.set_modified(node, seconds * 1_000_000_000 + nanoseconds)
        return self._files.attributes(node).as_answer()

    def _refuse(self, _r: FuseRequest) -> bytes:
        raise OSError(errno.ENOTSUP, "files and folders only")

    def _rename(self, r: FuseRequest) -> None:
        (parent,) = r.unpack("Q")
        old, new = r.names(8)
        self._files.rename(self._node(r), old, self._files.nodes[parent], new)

    def _create(self, r: FuseRequest) -> bytes:
        node, handle = self._files.create(self._node(r), r.names(16)[0])
        return self._entry(node) + self._opened(handle)

    def _read(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        return self._files.read(self._handles[number], offset, size)

    def _write(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        written = self._files.write(self._handles[number], r.body[40 : 40 + size], offset)
        return written.to_bytes(8, "little")

    def _list(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        if offset == 0:  # also after rewinddir, which reads the folder again
            self._listings[number] = self._files.list(self._node(r))
        return directory_entries(self._listings.get(number, []), offset, size)

    def _close_folder(self, r: FuseRequest) -> None:
        self._listings.pop(r.unpack("Q")[0], None)  # a folder need not have been read
