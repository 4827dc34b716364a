"""What all operations share: the lock, the tables, the bodies, and seeing what somebody outside did to the tree."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Callable
from threading import RLock, Thread
from typing import TypeVar

from t5x_harness.google.storage.bodies import Bodies
from t5x_harness.google.storage.buckets import Buckets
from t5x_harness.google.storage.checksums import Digest
from t5x_harness.google.storage.database import Database, Identity, Place, Record
from t5x_harness.google.storage.errors import NotFound, WouldWait
from t5x_harness.google.storage.layout import Layout
from t5x_harness.google.storage.names import check_object_name
from t5x_harness.google.storage.tree import identify, identity_of
from t5x_harness.google.storage.values import Checksums, ObjectFields, Preconditions, StoredObject

__all__ = ["CHUNK", "Core", "Look", "Stale"]

Result = TypeVar("Result")

CHUNK = 1 << 20  # bytes read at a time

_COARSEST_TICK = 0.02  # seconds: two writes closer than a kernel's tick may leave the same mtime


class Stale(Exception):
    """Files changed outside and have to be read before an operation can go on."""

    def __init__(self, files: list[tuple[str, str]]) -> None:
        super().__init__(files)
        self.files = files


class Core:
    """The parts of a store.

    Attributes:
      lock: whoever reads or changes what the store knows holds it; bodies stream without it.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lock = RLock()
        self.database = Database(layout.database)
        self.buckets = Buckets(layout, self.database)
        self.bodies = Bodies(layout, self.database)
        self._opening, self._bodies = secrets.token_hex(8), itertools.count()
        self._checkpointing = self._closed = False

    def act(self, action: Callable[[Look], Result], *, wait: bool = True) -> Result:
        """Does something under the lock, as often as it takes to have read all files that changed outside.

        Args:
          action: what to do; it may be begun several times.
          wait: whether to wait for others who have the lock, and for files to be read.

        Raises:
          WouldWait: that was not to be.
        """
        look = Look(self)
        while True:
            if not self.lock.acquire(blocking=wait):
                raise WouldWait
            try:
                return action(look)
            except Stale as stale:
                files = stale.files
            finally:
                self._see_to_checkpoints()
                self.lock.release()
            if not wait:
                raise WouldWait
            look.read(files)

    def close(self) -> None:
        """Ends the use of the database."""
        with self.lock:
            self._closed = True
            self.database.close()

    def _see_to_checkpoints(self) -> None:
        """Has a thread wait for the disk where that is due: who commits may be an event loop."""
        if self.database.wants_checkpoint and not self._checkpointing:
            self._checkpointing = True
            Thread(target=self._checkpoint, name="t5x-google-checkpoint").start()

    def _checkpoint(self) -> None:
        with self.lock:
            self._checkpointing = False
            if not self._closed:
                self.database.checkpoint()

    def new_body(self) -> str:
        """A name for the file of a body, which no other one has or had."""
        return f"{self._opening}{next(self._bodies):x}"

    def commit(
        self,
        bucket: str,
        name: str,
        body: str,
        checksums: Checksums,
        fields: ObjectFields,
        preconditions: Preconditions,
        *,
        component_count: int | None = None,
        also: Callable[[StoredObject], None] | None = None,
        wait: bool = True,
    ) -> StoredObject:
        """Makes an incoming file the body of an object.

        The transaction is the moment at which it happens. If the process is killed before it, the file is dropped; if
        it is killed after it, the file is put in its place when the store is opened again.

        Args:
          bucket: its bucket.
          name: its name.
          body: the name of the incoming file.
          checksums: of the file.
          fields: what the client says of it.
          preconditions: on what the name has now.
          component_count: for a composed object.
          also: what else to record at the same moment.
          wait: as in :meth:`act`.

        Raises:
          NotFound: there is no such bucket.
          PreconditionFailed, NotModified: a condition does not hold.
          WouldWait: it was not to wait.
        """

        def action(look: Look) -> StoredObject:
            self.buckets.get(bucket)
            if preconditions.given:
                preconditions.check(look.object(bucket, name))
            old = self.database.record(bucket, name)
            path = self.layout.incoming_path(body)
            generation = self.database.next_generation()
            # The time of the file is the generation, so that any later write from outside differs from it.
            os.utime(path, ns=(generation * 1000, generation * 1000))
            identity = identity_of(os.stat(path))
            written = StoredObject(
                bucket=bucket,
                name=name,
                generation=generation,
                metageneration=1,
                size=identity.size,
                created=generation,
                updated=generation,
                md5=checksums.md5,
                crc32c=checksums.crc32c or "",
                fields=fields,
                component_count=component_count,
            )
            record = Record(written, self.bodies.choose(bucket, name, identity.size), body, identity)
            if also is None:
                self.database.put(record)
            else:
                with self.database.transaction():
                    self.database.put(record)
                    also(written)
            self.bodies.install(record, old)
            return written

        return self.act(action, wait=wait)


class Look:
    """One operation's view of the tree: a file that it has read counts as seen, even if it is still being written."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._read: set[tuple[str, str]] = set()

    def live(self, bucket: str, name: str) -> Record | None:
        """The record of a name as the tree has it now; None if there is no such object.

        Raises:
          Stale: the file has to be read first.
        """
        record = self._core.database.record(bucket, name)
        live = self.see(bucket, name, record)
        if record is not None and live is None:
            self._core.bodies.forget(record)
        return live

    def see(self, bucket: str, name: str, record: Record | None) -> Record | None:
        """Compares what is recorded of a name with the tree; None if the object is gone from there, or never was.

        Raises:
          Stale: the file has to be read first.
        """
        if record is not None and record.place is Place.FOLDER:
            return record if os.path.isdir(self._core.layout.folder_path(bucket, name) or "") else None
        path = self._core.layout.tree_path(bucket, name)
        found = None if path is None else identify(path)
        if found is not None:
            return self.compare(bucket, name, record, found)
        if record is None or record.place is Place.TREE:
            return None
        return self._core.bodies.move_in(record)

    def compare(self, bucket: str, name: str, record: Record | None, found: Identity) -> Record:
        """The record of a name that has a file in the tree.

        Raises:
          Stale: the file has to be read first.
        """
        if record is not None and record.place is Place.TREE and record.identity == found:
            return record
        if record is not None and (bucket, name) in self._read:
            return record
        raise Stale([(bucket, name)])

    def object(self, bucket: str, name: str) -> StoredObject | None:
        """The live object of a name; None if there is none."""
        record = self.live(bucket, name)
        return None if record is None else record.object

    def need(self, bucket: str, name: str, generation: int | None, preconditions: Preconditions) -> Record:
        """The record of an object that must exist.

        Raises:
          NotFound: there is no such bucket, object or generation.
          PreconditionFailed, NotModified: a condition does not hold.
          Stale: the file has to be read first.
        """
        check_object_name(name)
        self._core.buckets.get(bucket)
        record = self.live(bucket, name)
        if record is None or generation not in (None, record.object.generation):
            which = "" if generation is None else f"#{generation}"
            raise NotFound(f"No such object: {bucket}/{name}{which}")
        preconditions.check(record.object)
        return record

    def read(self, files: list[tuple[str, str]]) -> None:
        """Reads files that changed outside, without the lock, and records each as a new generation."""
        time.sleep(self._until_settled(files))
        for bucket, name in files:
            path = self._core.layout.tree_path(bucket, name)
            if path is not None:
                self._read_file(bucket, name, path)
            self._read.add((bucket, name))

    def _until_settled(self, files: list[tuple[str, str]]) -> float:
        """Seconds until a further write to the files would show in their mtime."""
        paths = [self._core.layout.tree_path(bucket, name) for bucket, name in files]
        found = [identity for path in paths if path is not None and (identity := identify(path)) is not None]
        newest = max((identity.mtime for identity in found), default=0) / 1e9
        return min(max(newest + _COARSEST_TICK - time.time(), 0), _COARSEST_TICK)

    def _read_file(self, bucket: str, name: str, path: str) -> None:
        with contextlib.suppress(
            FileNotFoundError, NotADirectoryError, IsADirectoryError
        ):  # gone again: nothing to see
            identity, checksums = _read_steadily(path)
            with self._core.lock:
                old = self._core.database.record(bucket, name)
                if old is not None and old.place is Place.TREE and old.identity == identity:
                    return  # another thread was faster
                generation = self._core.database.next_generation()
                found = StoredObject(
                    bucket=bucket,
                    name=name,
                    generation=generation,
                    metageneration=1,
                    size=identity.size,
                    created=generation,
                    updated=generation,
                    md5=checksums.md5,
                    crc32c=checksums.crc32c or "",
                    fields=ObjectFields(),
                )
                self._core.database.put(Record(found, Place.TREE, "", identity))
                if old is not None and old.place is Place.ASIDE:
                    os.unlink(self._core.layout.aside_path(old.body))


def _read_steadily(path: str) -> tuple[Identity, Checksums]:
    """What a file is and the checksums of its bytes, read anew if somebody wrote meanwhile, three times at most."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        for _ in range(3):
            found = identity_of(os.fstat(fd))
            digest, digested = Digest(), 0
            # Not to the end: it may grow as fast as it is read.
            while data := os.pread(fd, min(CHUNK, found.size - digested), digested):
                digest.update(data)
                digested += len(data)
            if identity_of(os.fstat(fd)) == found:
                break
    finally:
        os.close(fd)
    return found._replace(size=digested), digest.checksums
