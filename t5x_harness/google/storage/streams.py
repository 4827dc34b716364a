"""Objects as streams: bodies that no one sees before they are committed, and readers of one generation."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Self

from t5x_harness.google.storage.core import CHUNK, Core, Digest, verify
from t5x_harness.google.storage.errors import StoreError
from t5x_harness.google.storage.values import Checksums, NewObject, StoredObject


class BodyWriter:
    """A new body and its checksums, for one thread at a time; a context manager that aborts an uncommitted body.

    Only :meth:`abort` may be called from another thread: the server ends a request while a thread still writes for it,
    and the descriptor must not be closed, and reused for another file, in the middle of that write.

    Args:
      md5: whether to compute MD5.
    """

    def __init__(self, core: Core, *, md5: bool = True) -> None:
        self._core = core
        self._digest = Digest(md5=md5)
        self._body = core.bodies.new_name()
        self._path = f"{core.layout.incoming}/{self._body}"
        self._file = open(self._path, "xb", buffering=0)  # noqa: SIM115 (a commit or abort closes it)
        self._in_use = threading.Lock()

    def write(self, data: bytes) -> None:
        """Appends bytes; raises ValueError after :meth:`abort`."""
        with self._in_use:
            if self._file.closed:
                raise ValueError("the body was dropped")
            write_all(self._file.fileno(), data)
            self._digest.update(data)

    def abort(self) -> None:
        """Drops the bytes; does nothing after a commit."""
        with self._in_use:
            if not self._file.closed:
                self._file.close()
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)

    def _keep(self) -> None:
        """Leaves the file to its new owner."""
        with self._in_use:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class ObjectWriter(BodyWriter):
    """The body of a new object."""

    def __init__(
        self, core: Core, new: NewObject, *, md5: bool = True, also: Callable[[StoredObject], None] | None = None
    ) -> None:
        super().__init__(core, md5=md5)
        self._new, self._also = new, also

    def commit(self, expected: Checksums = Checksums(), *, wait: bool = True) -> StoredObject:  # noqa: B008 (it is frozen)
        """Makes the bytes so far a new generation of the object; raises Invalid if they have other checksums.

        It also raises the errors of ObjectStore's methods; the bytes are then dropped, even after WouldWait.
        """
        with self:
            found = self._digest.checksums
            verify(expected, found)
            written = self._core.commit(self._new, self._body, found, also=self._also, wait=wait)
            self._keep()
            return written


def write_all(fd: int, data: bytes) -> None:
    """Writes all bytes at the end of a file; the operating system has them when this returns."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


class ObjectReader:
    """The bytes of one generation of an object, which stay readable when it is overwritten or deleted."""

    def __init__(self, stored: StoredObject, fd: int) -> None:
        self.object = stored
        self._fd = fd

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes of a range, to the end if ``end`` is None or too large.

        Raises StoreError if someone outside has truncated the file.
        """
        end = self.object.size if end is None else min(end, self.object.size)
        while start < end:
            data = os.pread(self._fd, min(CHUNK, end - start), start)
            if not data:
                it = self.object
                raise StoreError(f"{it.bucket}/{it.name} was cut at byte {start} of {it.size} from outside")
            yield data
            start += len(data)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Returns the bytes of a range; the arguments are those of :meth:`chunks`."""
        return b"".join(self.chunks(start, end))

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
