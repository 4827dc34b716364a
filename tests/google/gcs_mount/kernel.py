"""Sends the kernel's requests to the server of a mount in this process; needs no /dev/fuse."""

import contextlib
import errno
import os
import struct
from pathlib import Path

from t5x_harness.google.gcs_mount.filesystem import FileSystem
from t5x_harness.google.gcs_mount.server import FuseRequest, FuseServer, Operation

SIZE_IS_SET, MODIFIED_IS_SET = 1 << 3, 1 << 5


class Kernel:
    """The calls of processes that see a bucket at a mount; errors are raised as OSError.

    Args:
      root: the root of the store.
    """

    def __init__(self, root: Path, bucket: str = "data") -> None:
        self.files = FileSystem(root)
        self._server = FuseServer(-1, self.files)
        self.bucket = self.node(1, bucket)
        self._folders: dict[int, int] = {}

    def ask(self, operation: Operation, node: int, body: bytes) -> bytes:
        return self._server.answer(FuseRequest(operation, 0, node, memoryview(body)))

    def node(self, parent: int, name: str) -> int:
        return int(struct.unpack_from("=Q", self.ask(Operation.LOOKUP, parent, name.encode() + b"\0"))[0])

    def find(self, path: str) -> int:
        """Returns the node of a path in the bucket; an empty path is the bucket itself."""
        found = self.bucket
        for name in path.split("/") if path else ():
            found = self.node(found, name)
        return found

    def size(self, path: str) -> int:
        return self._size(self.find(path))

    def _size(self, node: int) -> int:
        return int(struct.unpack_from("=Q2I2Q", self.ask(Operation.GETATTR, node, b""))[4])

    def open(self, path: str, flags: int) -> int:
        """Returns a handle for a file, which is created if it does not exist and the flags have O_CREAT."""
        parent, name = self._parent(path)
        try:
            node = self.node(parent, name)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            body = struct.pack("=4I", flags, 0o644, 0, 0) + name.encode() + b"\0"
            return int(struct.unpack_from("=Q", self.ask(Operation.CREATE, parent, body), 128)[0])
        return int(struct.unpack_from("=Q", self.ask(Operation.OPEN, node, struct.pack("=2I", flags, 0)))[0])

    def read(self, handle: int, offset: int = 0) -> bytes:
        return self.ask(Operation.READ, 0, struct.pack("=QQI", handle, offset, 1 << 16))

    def write(self, handle: int, offset: int | None, data: bytes) -> None:
        """Writes at an offset; None is the end of the file."""
        if offset is None:
            offset = self._size(self._server._handles[handle].node.number)
        body = struct.pack("=QQI20x", handle, offset, len(data)) + data
        assert self.ask(Operation.WRITE, 0, body) == len(data).to_bytes(8, "little")

    def flush(self, handle: int) -> None:
        self.ask(Operation.FLUSH, 0, struct.pack("=Q", handle))

    def release(self, handle: int) -> None:
        self.ask(Operation.RELEASE, 0, struct.pack("=Q", handle))

    def close(self, handle: int) -> None:
        """Closes the last descriptor of a handle."""
        try:
            self.flush(handle)
        finally:
            self.release(handle)

    def unlink(self, path: str) -> None:
        self._by_name(Operation.UNLINK, path)

    def mkdir(self, path: str) -> None:
        parent, name = self._parent(path)
        try:
            self.node(parent, name)
        except FileNotFoundError:
            self.ask(Operation.MKDIR, parent, struct.pack("=2I", 0o755, 0) + name.encode() + b"\0")
        else:
            raise FileExistsError(errno.EEXIST, "it is there")

    def rmdir(self, path: str) -> None:
        self._by_name(Operation.RMDIR, path)

    def rename(self, old: str, new: str) -> None:
        (parent, old_name), (new_parent, new_name) = self._parent(old), self._parent(new)
        self.node(parent, old_name)
        with contextlib.suppress(FileNotFoundError):
            self.node(new_parent, new_name)
        body = struct.pack("=Q", new_parent) + old_name.encode() + b"\0" + new_name.encode() + b"\0"
        self.ask(Operation.RENAME, parent, body)

    def set_modified(self, path: str, seconds: int) -> None:
        body = struct.pack("=IIQQQqqqII", MODIFIED_IS_SET, 0, 0, 0, 0, 0, seconds, 0, 0, 0)
        self.ask(Operation.SETATTR, self.find(path), body)

    def truncate(self, path: str, size: int) -> None:
        self._resize(self.find(path), size)

    def ftruncate(self, handle: int, size: int) -> None:
        self._resize(self._server._handles[handle].node.number, size)

    def _resize(self, node: int, size: int) -> None:
        self.ask(Operation.SETATTR, node, struct.pack("=IIQQQqqqII", SIZE_IS_SET, 0, 0, size, 0, 0, 0, 0, 0, 0))

    def listdir(self, path: str) -> list[str]:
        folder, found, offset = self.open_folder(path), [], 0
        while entries := self.read_folder(folder, offset):
            found += [name for name, _ in entries]
            offset = entries[-1][1]
        self.close_folder(folder)
        return found

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self.find(folder), name

    def _by_name(self, operation: Operation, path: str) -> None:
        parent, name = self._parent(path)
        self.node(parent, name)
        self.ask(operation, parent, name.encode() + b"\0")

    def forget(self, node: int, lookups: int) -> None:
        self.ask(Operation.FORGET, node, struct.pack("=Q", lookups))

    def open_folder(self, path: str = "") -> int:
        flags = struct.pack("=2I", 0, 0)
        number = int(struct.unpack_from("=Q", self.ask(Operation.OPENDIR, self.find(path), flags))[0])
        self._folders[number] = self.find(path)
        return number

    def read_folder(self, handle: int, offset: int, size: int = 1 << 12) -> list[tuple[str, int]]:
        """Returns names, each with the offset at which the next one begins."""
        found = self.ask(Operation.READDIR, self._folders[handle], struct.pack("=QQI", handle, offset, size))
        entries, at = [], 0
        while at < len(found):
            _, behind, length, _ = struct.unpack_from("=2Q2I", found, at)
            entries.append((found[at + 24 : at + 24 + length].decode(), behind))
            at += -(-(24 + length) // 8) * 8
        return entries

    def close_folder(self, handle: int) -> None:
        self.ask(Operation.RELEASEDIR, self._folders.pop(handle), struct.pack("=Q", handle))
