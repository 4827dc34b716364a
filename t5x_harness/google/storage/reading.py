"""Reading an object as a stream: one generation, whatever is written meanwhile."""

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
          end: the byte after the last; None or more than there are stand for the size.
          chunk: the most bytes to yield at a time.

        Raises:
          StoreError: somebody outside cut the file meanwhile.
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
        """Returns the bytes of a range in one piece, as in ``chunks``."""
        return b"".join(self.chunks(start, end))

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_object(core: Core, source: SourceObject, *, wait: bool = True) -> ObjectReader:
    """Opens an object; raises as ``ObjectStore.open_read``, and Forbidden if its file may not be read."""

    def action(view: TreeView) -> ObjectReader:
        record = view.need(source.bucket, source.name, source.generation, source.preconditions)
        try:
            # Not waiting: somebody outside may have put a pipe there since.
            fd = os.open(core.bodies.path(record), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except PermissionError as error:
            raise Forbidden(f"{error.filename} cannot be read: {error.strerror}") from None
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            # Somebody outside removed it since.
            raise NoSuchResource(f"No such object: {source.bucket}/{source.name}") from None
        try:
            if record.place is BodyPlace.TREE:  # somebody outside may have put another in its place since
                view.compare(source.bucket, source.name, record, identity_of(os.fstat(fd)))
        except ChangedOutside:
            os.close(fd)
            raise
        return ObjectReader(record.object, fd)

    return core.run(action, wait=wait)
