"""Reads an object as a stream: one generation, even if the object is overwritten meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator

from t5x_harness.google.storage.core import CHUNK, ChangedOutside, Core, TreeView
from t5x_harness.google.storage.database import BodyPlace
from t5x_harness.google.storage.errors import Forbidden, NoSuchResource, StoreError
from t5x_harness.google.storage.tree import NO_FILE, identity_of
from t5x_harness.google.storage.values import SourceObject, StoredObject


class ObjectReader:
    """The bytes of one generation of an object, which stay readable when it is overwritten or deleted."""

    def __init__(self, stored: StoredObject, fd: int) -> None:
        self.object = stored
        self._fd = fd

    def chunks(self, start: int = 0, end: int | None = None, *, chunk: int = CHUNK) -> Iterator[bytes]:
        """Yields the bytes of a range.

        Args:
          start: the first byte.
          end: the byte after the last; None or a larger number stands for the size.
          chunk: the most bytes to yield at a time.

        Raises:
          StoreError: someone outside has truncated the file.
        """
        end = self.object.size if end is None else min(end, self.object.size)
        while start < end:
            data = os.pread(self._fd, min(chunk, end - start), start)
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


def open_object(core: Core, source: SourceObject, *, wait: bool = True) -> ObjectReader:
    """Opens an object; raises as ``ObjectStore.open_read`` does, and Forbidden if its file may not be read."""

    def action(view: TreeView) -> ObjectReader:
        record = view.need(source.bucket, source.name, source.generation, source.preconditions)
        try:
            # Without blocking: someone outside may have put a pipe there.
            fd = os.open(core.bodies.path(record), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except PermissionError as error:
            raise Forbidden(f"{error.filename} cannot be read: {error.strerror}") from None
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            raise NoSuchResource(
                f"No such object: {source.bucket}/{source.name}"
            ) from None  # someone outside has removed it
        try:
            if record.place is BodyPlace.TREE:  # someone outside may have replaced it
                view.compare(source.bucket, source.name, record, identity_of(os.fstat(fd)))
        except ChangedOutside:
            os.close(fd)
            raise
        return ObjectReader(record.object, fd)

    return core.run(action, wait=wait)
