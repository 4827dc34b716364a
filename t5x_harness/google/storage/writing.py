"""Writing an object as a stream: nobody sees it before it is committed, and nothing is left of it otherwise."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Self

from t5x_harness.google.storage.checksums import Digest, verify
from t5x_harness.google.storage.core import Core
from t5x_harness.google.storage.values import Checksums, ObjectFields, Preconditions, StoredObject


class IncomingBody:
    """The file of a body on its way in, with its checksums; for one thread at a time.

    Only :meth:`drop` may be called by another: the server ends a request while a thread still writes for it, and the
    descriptor must not be closed, and be somebody else's, under that.

    Args:
      md5: False leaves MD5 out.
    """

    def __init__(self, core: Core, *, md5: bool = True) -> None:
        self.name = core.bodies.new_name()
        self._digest = Digest(md5=md5)
        self._path = core.layout.incoming_path(self.name)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._open = True
        self._in_use = threading.Lock()

    def write(self, data: bytes) -> None:
        """Takes in the next bytes; raises ValueError if it was dropped."""
        with self._in_use:
            if not self._open:
                raise ValueError("the body was dropped")
            write_all(self._fd, data)
            self._digest.update(data)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @property
    def checksums(self) -> Checksums:
        return self._digest.checksums

    def keep(self) -> None:
        """Says that the file belongs to somebody now."""
        with self._in_use:
            self._close()

    def drop(self) -> None:
        """Removes the file, unless it was kept."""
        with self._in_use:
            if self._close():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)

    def _close(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            os.close(self._fd)
        return was_open


class BodyWriter:
    """A body on its way in, for one thread at a time.

    As a context manager it is aborted at the end unless it was committed.
    """

    def __init__(self, core: Core, *, md5: bool = True) -> None:
        self._core = core
        self._body = IncomingBody(core, md5=md5)

    def write(self, data: bytes) -> None:
        self._body.write(data)

    def abort(self) -> None:
        """Drops the bytes; does nothing after a commit."""
        self._body.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class ObjectWriter(BodyWriter):
    """An object on its way in."""

    def __init__(
        self,
        core: Core,
        bucket: str,
        name: str,
        fields: ObjectFields,
        preconditions: Preconditions,
        *,
        md5: bool = True,
        component_count: int | None = None,
        also: Callable[[StoredObject], None] | None = None,
    ) -> None:
        super().__init__(core, md5=md5)
        self._target = (bucket, name)
        self._fields = fields
        self._preconditions = preconditions
        self._components = component_count
        self._also = also

    def commit(self, expected: Checksums = Checksums(), *, wait: bool = True) -> StoredObject:  # noqa: B008 (it is frozen)
        """Makes the bytes so far an object.

        Args:
          expected: what the client says they add up to.

        Returns:
          The object, a new generation.

        Raises:
          Invalid: they add up to something else.
          NotFound: the bucket is gone.
          PreconditionFailed, NotModified: a condition does not hold.
          WouldWait: it was not to wait; the bytes are dropped, too.
        """
        with self:
            found = self._body.checksums
            verify(expected, found)
            written = self._core.commit(
                *(*self._target, self._body.name, found, self._fields, self._preconditions),
                component_count=self._components,
                also=self._also,
                wait=wait,
            )
            self._body.keep()
            return written


def write_all(fd: int, data: bytes) -> None:
    """Writes all bytes at the end of a file; the operating system has them when this returns."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])
