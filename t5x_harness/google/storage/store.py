"""The store: buckets and objects in a folder, for the threads of one process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from t5x_harness.google.storage import listing
from t5x_harness.google.storage.core import ChangedOutside, Core, TreeView
from t5x_harness.google.storage.database import BodyPlace
from t5x_harness.google.storage.disk import FilesLock, FolderLock, Reserve, StoreLayout, is_full, refusal
from t5x_harness.google.storage.errors import CannotOpen, Conflict, Forbidden, Invalid, NoSuchResource, StoreError
from t5x_harness.google.storage.names import check_object_name
from t5x_harness.google.storage.streams import ObjectReader, ObjectWriter
from t5x_harness.google.storage.tree import NO_FILE, identity_of
from t5x_harness.google.storage.uploads import Multiparts, Uploads
from t5x_harness.google.storage.values import (
    ANY,
    Bucket,
    Checksums,
    Listing,
    ListingQuery,
    NewObject,
    ObjectFields,
    Preconditions,
    SourceObject,
    StoredObject,
)

_NO_FIELDS = ObjectFields()
_NO_CHECKSUMS = Checksums()
_EVERYTHING = ListingQuery()
_MOST_SOURCES = 32


class ObjectStore:
    """Buckets and objects with Google's semantics, in a folder that others may read and write as files.

    Any thread may call any method. The result of a method is durable when it returns, even if the process is killed
    right after; nothing of an unfinished method is visible. A request with conditions is checked and carried out
    atomically.

    Methods raise NoSuchResource for a missing bucket or object, Invalid for a name that Google would refuse, and
    PreconditionFailed or NotModified if a condition does not hold. With ``wait=False``, so that an event loop can call
    them, they raise WouldWait if they would have to wait for another thread, or for a file from outside to be read.

    Files that someone else puts into ``<root>/buckets/<bucket>/`` count as objects as soon as an operation looks for
    them: new generations, without fields. Folders are not objects.

    Args:
      root: the folder; made if it does not exist. disk.py shows its content.

    Raises:
      CannotOpen: another process has the folder open, another release wrote it, it is damaged, or its disk is full.
    """

    def __init__(self, root: Path, *, create_buckets: bool = False) -> None:
        try:
            layout = StoreLayout(root)
            self._lock = FolderLock(layout.lock)
        except OSError as error:
            raise CannotOpen(refusal(error, root).message) from None
        try:
            try:
                self._open(layout, create_buckets)
            except (OSError, sqlite3.Error) as error:
                if not (is_full(error) and Reserve(layout.reserve).give()):
                    raise
                self._open(layout, create_buckets)
        except (OSError, sqlite3.Error) as error:
            self._lock.release()
            raise CannotOpen(_why_not(error, layout)) from None
        except BaseException:
            self._lock.release()
            raise

    def _open(self, layout: StoreLayout, create_buckets: bool) -> None:
        self._core = Core(layout, create_buckets=create_buckets)
        try:
            self.uploads = Uploads(self._core)
            self.multiparts = Multiparts(self._core)
            with FilesLock(layout.root):
                self._core.bodies.recover(self.uploads.expire() | self._core.database.part_bodies())
            self._core.reserve.refill()
        except BaseException:
            self._core.database.close()
            raise

    def refusal(self, error: OSError | sqlite3.Error) -> StoreError:
        """Returns the answer to a request that failed because of the disk under the store."""
        return refusal(error, self._core.layout.root)

    def close(self) -> None:
        """Closes the store, so that others can open the folder. May be called again."""
        with self._core.lock:
            self._core.close()
            self._lock.release()

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_bucket(self, name: str, fields: Mapping[str, object] | None = None) -> Bucket:
        """Makes a bucket, whose ``fields`` are JSON values; raises Conflict if it exists."""
        with self._core.lock:
            return self._core.buckets.create(name, fields or {})

    def bucket(self, name: str, preconditions: Preconditions = ANY) -> Bucket:
        with self._core.lock:
            found = self._core.buckets.get(name)
            preconditions.check(found)
            return found

    def buckets(self, prefix: str = "") -> list[Bucket]:
        """Returns all buckets whose names begin with ``prefix``, by name."""
        with self._core.lock:
            return [bucket for bucket in self._core.buckets.all() if bucket.name.startswith(prefix)]

    def patch_bucket(self, name: str, changes: Mapping[str, object], preconditions: Preconditions = ANY) -> Bucket:
        """Applies a JSON merge patch to the fields of a bucket; its metageneration grows."""
        with self._core.lock:
            return self._core.buckets.patch(name, changes, preconditions)

    def delete_bucket(self, name: str, preconditions: Preconditions = ANY) -> None:
        """Removes a bucket, its unfinished uploads and empty folders; raises Conflict if anything else is in it."""

        def action(view: TreeView) -> None:
            preconditions.check(self._core.buckets.get(name))
            with self._core.changing():
                if not listing.is_empty(self._core, view, name):
                    raise Conflict("The bucket you tried to delete is not empty.", code="BucketNotEmpty")
                bodies = self._core.buckets.delete(name)
            self._core.bodies.drop(bodies)

        self._core.run(action)

    def open_write(
        self,
        bucket: str,
        name: str,
        fields: ObjectFields = _NO_FIELDS,
        preconditions: Preconditions = ANY,
        *,
        wait: bool = True,
    ) -> ObjectWriter:
        """Begins to write an object; the conditions are checked now, and again at the commit."""
        check_object_name(name)
        self._core.run(lambda view: view.check(bucket, name, preconditions), wait=wait)
        return ObjectWriter(self._core, NewObject(bucket, name, fields, preconditions))

    def write(
        self,
        bucket: str,
        name: str,
        data: bytes,
        fields: ObjectFields = _NO_FIELDS,
        preconditions: Preconditions = ANY,
        expected: Checksums = _NO_CHECKSUMS,
        *,
        wait: bool = True,
    ) -> StoredObject:
        """Writes an object that fits in memory, as :meth:`open_write` and a commit do."""
        with self.open_write(bucket, name, fields, preconditions, wait=wait) as writer:
            writer.write(data)
            return writer.commit(expected, wait=wait)

    def open_read(
        self, bucket: str, name: str, preconditions: Preconditions = ANY, *, wait: bool = True
    ) -> ObjectReader:
        """Opens an object to read ranges of it; the caller closes the reader.

        Only the live generation can be named, because versioning is off. Raises Forbidden if the file may not be read.
        """

        def action(view: TreeView) -> ObjectReader:
            record = view.need(bucket, name, preconditions)
            try:
                # It must not block: someone outside may have put a pipe there.
                fd = os.open(self._core.bodies.path(record), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except PermissionError as error:
                raise Forbidden(f"{error.filename} cannot be read: {error.strerror}") from None
            except OSError as error:
                if error.errno not in NO_FILE:
                    raise
                # Someone outside has removed it.
                raise NoSuchResource(f"No such object: {bucket}/{name}") from None
            try:
                if record.place is BodyPlace.TREE:  # someone outside may have replaced it
                    view.compare(bucket, name, record, identity_of(os.fstat(fd)))
            except ChangedOutside:
                os.close(fd)
                raise
            return ObjectReader(record.object, fd)

        return self._core.run(action, wait=wait)

    def stat(self, bucket: str, name: str, preconditions: Preconditions = ANY, *, wait: bool = True) -> StoredObject:
        """Returns the metadata of an object."""
        return self._core.run(lambda view: view.need(bucket, name, preconditions).object, wait=wait)

    def patch(
        self,
        bucket: str,
        name: str,
        fields: ObjectFields,
        preconditions: Preconditions = ANY,
        *,
        clear: Collection[str] = (),
    ) -> StoredObject:
        """Changes the fields of an object; its metageneration grows.

        Args:
          fields: None leaves a field unchanged. Metadata are merged with the present ones, and None removes one.
          clear: names of fields to unset first; all of them make this an update instead of a patch.
        """

        def action(view: TreeView) -> StoredObject:
            record = view.need(bucket, name, preconditions)
            changed = dataclasses.replace(
                record.object,
                metageneration=record.object.metageneration + 1,
                updated=time.time_ns() // 1000,
                fields=_patched(record.object.fields, fields, clear),
            )
            self._core.database.put(dataclasses.replace(record, object=changed))
            return changed

        return self._core.run(action, grows=True)

    def delete(self, bucket: str, name: str, preconditions: Preconditions = ANY) -> None:
        """Removes an object."""

        def action(view: TreeView) -> None:
            with self._core.changing():
                self._core.bodies.remove(view.need(bucket, name, preconditions))

        self._core.run(action)

    def move(self, source: SourceObject, name: str, preconditions: Preconditions = ANY) -> StoredObject:
        """Renames an object in its bucket, atomically; it replaces an object that has the new name.

        Bytes and fields stay; the generation and the times are new, and the metageneration is 1. The preconditions are
        on the object that has the new name.
        """
        bucket = source.bucket
        check_object_name(name)
        if name == source.name:
            raise Invalid(f"An object is moved to another name, not to its own: {name[:80]!r}")

        def action(view: TreeView) -> StoredObject:
            with self._core.changing():
                record = view.need(bucket, source.name, source.preconditions)
                view.check(bucket, name, preconditions)
                it, generation = record.object, self._core.database.next_generation()
                new = NewObject(bucket, name, it.fields, component_count=it.component_count)
                moved = StoredObject.of(new, generation, it.size, Checksums(it.md5, it.crc32c))
                try:
                    self._core.bodies.rename(record, moved)
                except FileNotFoundError:
                    raise ChangedOutside([(bucket, source.name)]) from None
                return moved

        return self._core.run(action, grows=True)

    def compose(
        self,
        bucket: str,
        name: str,
        sources: Sequence[SourceObject],
        fields: ObjectFields = _NO_FIELDS,
        preconditions: Preconditions = ANY,
    ) -> StoredObject:
        """Joins 1 to 32 objects of a bucket, one after the other.

        As with Google, the result has no MD5, and counts its components through all compositions.
        """
        check_object_name(name)
        if not 1 <= len(sources) <= _MOST_SOURCES:
            count = len(sources)
            raise Invalid(f"The number of source components provided ({count}) must be between 1 and {_MOST_SOURCES}")
        if any(source.bucket != bucket for source in sources):
            raise Invalid(f"Objects are composed of objects of the same bucket, {bucket}")
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(self.open_read(*source)) for source in sources]
            count = sum(reader.object.component_count or 1 for reader in readers)
            with ObjectWriter(self._core, NewObject(bucket, name, fields, preconditions, count), md5=False) as writer:
                _pour(readers, writer)
                return writer.commit()

    def copy(
        self,
        source: SourceObject,
        bucket: str,
        name: str,
        fields: ObjectFields | None = None,
        preconditions: Preconditions = ANY,
    ) -> StoredObject:
        """Copies an object, by default with its fields."""
        check_object_name(name)
        with self.open_read(*source) as reader:
            it = reader.object
            fields = it.fields if fields is None else fields
            new = NewObject(bucket, name, fields, preconditions, it.component_count)
            with ObjectWriter(self._core, new, md5=it.md5 is not None) as writer:
                _pour([reader], writer)
                return writer.commit(Checksums(crc32c=it.crc32c))

    def list(self, bucket: str, query: ListingQuery = _EVERYTHING) -> Listing:
        """Returns a page of the objects of a bucket, by the UTF-8 bytes of their names; see ``list_objects``."""
        return listing.list_objects(self._core, bucket, query)


def _pour(readers: Sequence[ObjectReader], writer: ObjectWriter) -> None:
    for reader in readers:
        for data in reader.chunks():
            writer.write(data)


def _why_not(error: OSError | sqlite3.Error, layout: StoreLayout) -> str:
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return (
            f"{layout.database} is damaged ({error}). Without it the files in {layout.buckets} are still objects, but "
            "what was recorded of them and of unfinished uploads is lost: move it away, or serve another folder"
        )
    return refusal(error, layout.root).message


def _patched(old: ObjectFields, changes: ObjectFields, clear: Collection[str]) -> ObjectFields:
    kept = {name: None if name in clear else value for name, value in vars(old).items()}
    kept |= {name: value for name, value in vars(changes).items() if value is not None}
    if changes.metadata is not None:
        merged = {**({} if "metadata" in clear else old.metadata or {}), **changes.metadata}
        kept["metadata"] = {key: value for key, value in merged.items() if value is not None}
    return ObjectFields(**kept)
