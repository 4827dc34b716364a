"""Asks the server of a mount in this process, as the kernel does; needs no /dev/fuse."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from t5x_harness.google.gcs_mount.filesystem import FileSystem
from t5x_harness.google.gcs_mount.protocol import Operation, Request
from t5x_harness.google.gcs_mount.server import _Server

__all__ = ["Kernel"]

SIZE_IS_SET, MODIFIED_IS_SET = 1 << 3, 1 << 5


class Kernel:
    """The calls of processes that see the bucket ``data`` at a mount; errors are raised as OSError.

    Args:
      root: of the store.
    """

    def __init__(self, root: Path) -> None:
        self.files = FileSystem(str(root / "buckets"), str(root))
        self._server = _Server(-1, self.files)
        self.bucket = self.node(1, "data")

    def ask(self, operation: Operation, node: int, body: bytes) -> bytes:
        answer = self._server.answer(Request(operation, 0, node, memoryview(body)))
        return b"" if answer is None else answer

    def node(self, parent: int, name: str) -> int:
        return int(struct.unpack_from("=Q", self.ask(Operation.LOOKUP, parent, name.encode() + b"\0"))[0])

    def find(self, name: str) -> int:
        return self.node(self.bucket, name)

    def size(self, name: str) -> int:
        return int(struct.unpack_from("=Q2I2Q", self.ask(Operation.GETATTR, self.find(name), b""))[4])

    def open(self, name: str, flags: int) -> int:
        """A handle; the file is created where the flags say so and it is not there."""
        try:
            node = self.find(name)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            body = struct.pack("=4I", flags, 0o644, 0, 0) + name.encode() + b"\0"
            return int(struct.unpack_from("=Q", self.ask(Operation.CREATE, self.bucket, body), 128)[0])
        return int(struct.unpack_from("=Q", self.ask(Operation.OPEN, node, struct.pack("=2I", flags, 0)))[0])

    def read(self, handle: int, offset: int = 0) -> bytes:
        return self.ask(Operation.READ, 0, struct.pack("=QQI", handle, offset, 1 << 16))

    def write(self, handle: int, offset: int, data: bytes) -> None:
        body = struct.pack("=QQI20x", handle, offset, len(data)) + data
        assert self.ask(Operation.WRITE, 0, body) == len(data).to_bytes(8, "little")

    def flush(self, handle: int) -> None:
        self.ask(Operation.FLUSH, 0, struct.pack("=Q", handle))

    def release(self, handle: int) -> None:
        self.ask(Operation.RELEASE, 0, struct.pack("=Q", handle))

    def close(self, handle: int) -> None:
        """Of the last descriptor."""
        try:
            self.flush(handle)
        finally:
            self.release(handle)

    def unlink(self, name: str) -> None:
        self.ask(Operation.UNLINK, self.bucket, name.encode() + b"\0")

    def rename(self, old: str, new: str) -> None:
        body = struct.pack("=Q", self.bucket) + old.encode() + b"\0" + new.encode() + b"\0"
        self.ask(Operation.RENAME, self.bucket, body)

    def set_modified(self, name: str, seconds: int) -> None:
        body = struct.pack("=IIQQQqqqII", MODIFIED_IS_SET, 0, 0, 0, 0, 0, seconds, 0, 0, 0)
        self.ask(Operation.SETATTR, self.find(name), body)

    def forget(self, node: int, lookups: int) -> None:
        self.ask(Operation.FORGET, node, struct.pack("=Q", lookups))

    def open_folder(self) -> int:
        return int(struct.unpack_from("=Q", self.ask(Operation.OPENDIR, self.bucket, struct.pack("=2I", 0, 0)))[0])

    def read_folder(self, handle: int, offset: int, size: int = 1 << 12) -> list[tuple[str, int]]:
        """Names, each with the offset to go on behind it."""
        found = self.ask(Operation.READDIR, self.bucket, struct.pack("=QQI", handle, offset, size))
        entries, at = [], 0
        while at < len(found):
            _, behind, length, _ = struct.unpack_from("=2Q2I", found, at)
            entries.append((found[at + 24 : at + 24 + length].decode(), behind))
            at += -(-(24 + length) // 8) * 8
        return entries

    def close_folder(self, handle: int) -> None:
        self.ask(Operation.RELEASEDIR, self.bucket, struct.pack("=Q", handle))
