"""The parts that all operations share: the lock, the tables, the bodies, checksums, and the detection of changes."""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from threading import RLock, Thread
from typing import TypeVar

import google_crc32c

from t5x_harness.google.storage.bodies import Bodies
from t5x_harness.google.storage.buckets import Buckets
from t5x_harness.google.storage.database import BodyPlace, Database, Identity, ObjectRecord
from t5x_harness.google.storage.disk import FilesLock, Reserve, StoreLayout, is_full
from t5x_harness.google.storage.errors import Invalid, NoSuchResource, WouldWait
from t5x_harness.google.storage.names import check_object_name
from t5x_harness.google.storage.tree import identify, identity_of
from t5x_harness.google.storage.values import ANY, Checksums, NewObject, Preconditions, StoredObject

Result = TypeVar("Result")

CHUNK = 1 << 20  # bytes read at a time

_COARSEST_TICK = 0.02  # seconds; two writes within one kernel tick may leave the same mtime
_MOST_READS = 3  # of one file in one operation


class Digest:
    """The running checksums of a stream; without MD5 if ``md5`` is false, as for Google's composed objects."""

    def __init__(self, *, md5: bool = True) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None
        self._crc32c = 0

    def update(self, data: bytes) -> None:
        if self._md5 is not None:
            self._md5.update(data)
        self._crc32c = google_crc32c.extend(self._crc32c, data)

    @property
    def checksums(self) -> Checksums:
        md5 = None if self._md5 is None else base64.b64encode(self._md5.digest()).decode()
        return Checksums(md5, base64.b64encode(self._crc32c.to_bytes(4, "big")).decode())


def verify(expected: Checksums, found: Checksums) -> None:
    """Raises Invalid if the checksums differ from those that the client announced; None is not compared."""
    for name, wanted, got in (("CRC32C", expected.crc32c, found.crc32c), ("MD5 hash", expected.md5, found.md5)):
        if wanted is not None and got is not None and wanted != got:
            raise Invalid(f'Provided {name} "{wanted}" doesn\'t match calculated {name} "{got}".', code="BadDigest")


class ChangedOutside(Exception):
    """Files were changed from outside, and have to be read before an operation can continue."""

    def __init__(self, files: list[tuple[str, str]]) -> None:
        super().__init__(files)
        self.files = files


class Core:
    """The parts of a store, and the lock that is held while records are read or changed; bodies stream without it."""

    def __init__(self, layout: StoreLayout, *, create_buckets: bool = False) -> None:
        self.layout = layout
        self.lock = RLock()
        self.reserve = Reserve(layout.reserve)
        self.database = Database(layout.database)
        self.buckets = Buckets(layout, self.database, create=create_buckets)
        self.bodies = Bodies(layout, self.database)
        self._checkpointing = self._closed = self._changing = False

    def run(self, action: Callable[[TreeView], Result], *, wait: bool = True, grows: bool = False) -> Result:
        """Runs an action under the lock, again and again until all files that changed outside have been read.

        With ``wait=False`` it raises WouldWait instead of waiting for the lock or for files to be read. An action that
        ``grows`` needs disk space; one that only reads or removes also works on a full disk.
        """
        view = TreeView(self, wait=wait)
        while True:
            if not self.lock.acquire(blocking=wait):
                raise WouldWait
            files: list[tuple[str, str]] = []
            try:
                found = action(view)
                self.reserve.refill()
                return found
            except ChangedOutside as stale:
                files = stale.files
            except (OSError, sqlite3.Error) as error:
                if grows or not is_full(error) or not (wait and self._make_room()):
                    raise
            finally:
                try:
                    self._see_to_checkpoints()
                finally:
                    self.lock.release()
            if not wait:
                raise WouldWait
            view.read(files)

    @contextlib.contextmanager
    def changing(self, *, wait: bool = True) -> Iterator[None]:
        """Keeps mounts from changing files; needs the lock, and may be nested. Raises WouldWait if it may not wait."""
        if self._changing:
            yield
            return
        with FilesLock(self.layout.root, wait=wait):
            self._changing = True
            try:
                yield
            finally:
                self._changing = False

    def _make_room(self) -> bool:
        """Frees the reserve for the database, whose log may then free more; returns False if there is no reserve."""
        if not self.reserve.give():
            return False
        with contextlib.suppress(sqlite3.Error):
            self.database.checkpoint(cut=True)
        return True

    def forget_gone(self, record: ObjectRecord, *, wait: bool = True) -> None:
        """Forgets an object whose file is gone; on a full disk this waits, because the object is invisible anyway."""
        try:
            with self.changing(wait=wait):
                self.bodies.forget(record)
        except sqlite3.Error as error:
            if not is_full(error):
                raise

    def close(self) -> None:
        """Closes the database; needs the lock."""
        self._closed = True
        self.database.close()

    def _see_to_checkpoints(self) -> None:
        """Starts a thread that waits for the disk if a checkpoint is due, because the caller may be an event loop."""
        if self._closed or self._checkpointing or not self.database.wants_checkpoint:
            return
        self._checkpointing = True
        try:
            Thread(target=self._checkpoint, name="google-checkpoint").start()
        except RuntimeError:  # no thread is available: the next operation tries again
            self._checkpointing = False

    def _checkpoint(self) -> None:
        with self.lock:
            self._checkpointing = False
            if not self._closed:
                self.database.checkpoint()

    def commit(
        self,
        new: NewObject,
        body: str,
        checksums: Checksums,
        *,
        also: Callable[[StoredObject], None] | None = None,
        wait: bool = True,
    ) -> StoredObject:
        """Makes an incoming file the body of an object; raises the errors of ObjectStore's methods.

        The transaction decides. If the process is killed before it, the file is dropped; if it is killed after it, the
        file is put in its place when the store is opened again. ``also`` is called in the transaction; if it raises,
        nothing is changed.
        """

        def action(view: TreeView) -> StoredObject:
            with self.changing(wait=wait):
                bucket, name = new.bucket, new.name
                view.check(bucket, name, new.preconditions)
                old = self.database.record(bucket, name)
                path = f"{self.layout.incoming}/{body}"
                generation = self.database.next_generation()
                try:
                    # The time of the file is the generation, so that any later write from outside differs from it.
                    os.utime(path, ns=(generation * 1000, generation * 1000))
                except FileNotFoundError:
                    raise NoSuchResource(f"No such upload: {body}") from None  # it was removed together with its bucket
                identity = identity_of(os.stat(path))
                written = StoredObject.of(new, generation, identity.size, checksums)
                with self.database.transaction() if also else contextlib.nullcontext():
                    if also:
                        also(written)
                    place, replaced = self.bodies.choose(bucket, name, identity.size)
                    record = ObjectRecord(written, place, body, identity, replaced)
                    self.database.put(record)
                self.bodies.install(path, record, old)
                return written

        return self.run(action, wait=wait, grows=True)


class TreeView:
    """One operation's view of the tree, which treats a file that it has read as seen even if it is still being written.

    With ``wait=False`` it does not wait for the lock on the files when one has to be moved.
    """

    def __init__(self, core: Core, *, wait: bool = True) -> None:
        self._core = core
        self._wait = wait
        self._read: collections.Counter[tuple[str, str]] = collections.Counter()
        self._unreadable: set[tuple[str, str]] = set()
        self._unrecorded: dict[tuple[str, str], ObjectRecord] = {}

    def live(self, bucket: str, name: str) -> ObjectRecord | None:
        """Returns the current record of a name, or None; raises ChangedOutside if its file has to be read."""
        record = self._core.database.record(bucket, name)
        live = self.see(bucket, name, record)
        if record is not None and live is None:
            self._core.forget_gone(record, wait=self._wait)
        return live

    def see(self, bucket: str, name: str, record: ObjectRecord | None) -> ObjectRecord | None:
        """Looks at the tree; returns the record that is valid now, or None; raises the errors of :meth:`live`."""
        if record is not None and record.place is BodyPlace.FOLDER:
            return record if os.path.isdir(self._core.layout.folder_path(bucket, name) or "") else None
        path = self._core.layout.tree_path(bucket, name)
        try:
            found = None if path is None else identify(path)
        except PermissionError:  # a change would not be visible
            return record
        if found is not None and (bucket, name) in self._unreadable:
            return record
        if found is not None:
            return self.compare(bucket, name, record, found)
        if record is None or record.place is BodyPlace.TREE:
            return None
        with self._core.changing(wait=self._wait):
            return self._core.bodies.move_in(record)

    def compare(self, bucket: str, name: str, record: ObjectRecord | None, found: Identity) -> ObjectRecord:
        """Returns the record of a name whose file is in the tree; raises ChangedOutside if that has to be read."""
        if record is not None and record.place is BodyPlace.TREE and record.identity == found:
            return record
        if unrecorded := self._unrecorded.get((bucket, name)):
            return unrecorded
        times = self._read[bucket, name]
        # A file that grows counts as seen; one that replaces another is read again, but not forever.
        if record is not None and times and (record.identity.inode == found.inode or times >= _MOST_READS):
            return record
        raise ChangedOutside([(bucket, name)])

    def check(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        """Raises an error if the bucket does not exist, or a condition on the object of that name does not hold."""
        self._core.buckets.get(bucket)
        if preconditions != ANY:
            record = self.live(bucket, name)
            preconditions.check(None if record is None else record.object)

    def need(self, bucket: str, name: str, preconditions: Preconditions) -> ObjectRecord:
        """Returns the record of an object; raises the errors of ObjectStore's methods and of :meth:`live`."""
        check_object_name(name)
        self._core.buckets.get(bucket)
        record, generation = self.live(bucket, name), preconditions.generation
        if record is None or generation not in (None, record.object.generation):
            which = "" if generation is None else f"#{generation}"
            raise NoSuchResource(f"No such object: {bucket}/{name}{which}")
        preconditions.check(record.object)
        return record

    def read(self, files: list[tuple[str, str]]) -> None:
        """Reads files that changed outside, without the lock, and records each as a new generation."""
        paths = [self._core.layout.tree_path(bucket, name) for bucket, name in files]
        found = [identity for path in paths if path is not None and (identity := identify(path)) is not None]
        newest = max((identity.mtime for identity in found), default=0) / 1e9
        # Waits until another write to the files would change their mtime.
        time.sleep(min(max(newest + _COARSEST_TICK - time.time(), 0), _COARSEST_TICK))
        for bucket, name in files:
            path = self._core.layout.tree_path(bucket, name)
            if path is not None and self._read_file(bucket, name, path):
                self._read[bucket, name] += 1

    def _read_file(self, bucket: str, name: str, path: str) -> bool:
        """Reads a file and records it; returns False if another thread recorded the name meanwhile."""
        with self._core.lock:
            before = self._core.database.record(bucket, name)
        try:
            identity, checksums = _read_steadily(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return True  # it is gone again
        except PermissionError:
            self._unreadable.add((bucket, name))
            return True
        with self._core.lock:
            old = self._core.database.record(bucket, name)
            if old != before:
                return False  # a write may have replaced the content that was read
            if old is not None and old.place is BodyPlace.TREE and old.identity == identity:
                return True  # another thread was faster
            generation = self._core.database.next_generation()
            found = StoredObject.of(NewObject(bucket, name), generation, identity.size, checksums)
            record = ObjectRecord(found, BodyPlace.TREE, "", identity)
            try:
                self._core.database.put(record)
            except sqlite3.Error as error:
                if not is_full(error):
                    raise
                # The file is listed anyway, with a generation that is valid while the file stays and the disk is full.
                stays = dataclasses.replace(found, generation=identity.mtime // 1000)
                self._unrecorded[bucket, name] = dataclasses.replace(record, object=stays)
                return True
            if old is not None and old.place is BodyPlace.ASIDE:
                os.unlink(f"{self._core.layout.aside}/{old.body}")
        return True


def _read_steadily(path: str) -> tuple[Identity, Checksums]:
    """Returns the identity and the checksums of a file; reads it up to three times if it changes meanwhile."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        for _ in range(3):
            found = identity_of(os.fstat(fd))
            digest, digested = Digest(), 0
            # It does not read to the end of the file, which may grow as fast as it is read.
            while data := os.pread(fd, min(CHUNK, found.size - digested), digested):
                digest.update(data)
                digested += len(data)
            if identity_of(os.fstat(fd)) == found:
                break
    finally:
        os.close(fd)
    return found._replace(size=digested), digest.checksums
