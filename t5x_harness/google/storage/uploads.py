"""Uploads in several requests, which survive killed servers: resumable ones, and multipart ones of the XML API."""

import contextlib
import dataclasses
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence

from t5x_harness.google.storage.core import CHUNK, Core, Digest, TreeView, verify
from t5x_harness.google.storage.errors import Invalid, NoSuchResource, StoreError
from t5x_harness.google.storage.names import check_object_name
from t5x_harness.google.storage.streams import BodyWriter, ObjectWriter, write_all
from t5x_harness.google.storage.values import (
    ANY,
    Checksums,
    MultipartUpload,
    NewObject,
    ObjectFields,
    Preconditions,
    StoredObject,
    Upload,
    UploadPart,
)

_LIFETIME = 7 * 24 * 3600 * 1_000_000  # microseconds: Google's sessions expire after a week


class Uploads:
    """The resumable uploads of a store; any thread may use any upload at any time.

    Received bytes survive broken connections and killed servers until the upload ends.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def expire(self) -> set[str]:
        """Forgets uploads that are older than a week; returns the ids of the other unfinished ones."""
        oldest = time.time_ns() // 1000 - _LIFETIME
        unfinished = set()
        for started, upload in self._core.database.uploads():
            if started < oldest:
                self._core.database.forget_upload(upload.id)
            elif upload.finished is None:
                unfinished.add(upload.id)
        return unfinished

    def start(
        self,
        bucket: str,
        name: str,
        fields: ObjectFields = ObjectFields(),  # noqa: B008 (it is frozen)
        preconditions: Preconditions = ANY,
        expected: Checksums = Checksums(),  # noqa: B008 (it is frozen)
    ) -> Upload:
        """Begins an upload; the conditions have to hold now."""
        check_object_name(name)
        upload = Upload(self._core.bodies.new_name(), bucket, name, fields, preconditions, expected, received=0)

        def action(view: TreeView) -> None:
            view.check(bucket, name, preconditions)
            path = self._path(upload.id)
            with open(path, "xb"):
                try:
                    self._core.database.put_upload(upload, time.time_ns() // 1000)
                except BaseException:
                    os.unlink(path)
                    raise

        self._core.run(action, grows=True)
        return upload

    def get(self, upload_id: str) -> Upload:
        """Returns the state of an upload; raises NoSuchResource if it was canceled, was refused, or has expired."""
        with self._core.lock:  # for both the record and the file: an upload that ends hands over its file
            upload = self._core.database.upload(upload_id)
            if upload is None:
                raise NoSuchResource(f"No such upload: {upload_id}")
            if upload.finished is not None:
                return dataclasses.replace(upload, received=upload.finished.size)
            # The file holds the received bytes, so no other record has to be kept in step with it.
            return dataclasses.replace(upload, received=os.stat(self._path(upload_id)).st_size)

    def append(self, upload_id: str, offset: int, data: bytes) -> int:
        """Appends bytes, which are durable when this returns; returns the number of received bytes.

        Bytes that were received before are skipped, because a client that has lost an answer sends them again.

        Raises:
          NoSuchResource: the upload does not exist.
          Invalid: the offset leaves a gap, or the upload is finished without these bytes.
        """
        with self._alone(upload_id) as (upload, fd):
            if upload.finished is not None:
                # A request whose connection broke may finish an upload while another sends the same bytes again.
                if offset + len(data) <= upload.received:
                    return upload.received
                raise Invalid(f"The upload of {upload.bucket}/{upload.name} is finished")
            if offset > upload.received:
                raise Invalid(f"The upload has {upload.received} bytes: byte {offset} cannot follow")
            new = bytes(data[upload.received - offset :])
            write_all(fd, new)
            return upload.received + len(new)

    def finish(self, upload_id: str, expected: Checksums = Checksums()) -> StoredObject:  # noqa: B008 (it is frozen)
        """Turns the received bytes into an object; a second call returns the same object.

        Args:
          expected: checksums that the client announces in addition to those at the start.

        Raises:
          NoSuchResource: the upload does not exist, or its bucket is gone.
          Invalid: the bytes have other checksums; the upload is over.
          PreconditionFailed, NotModified: a condition does not hold; the upload is over.
        """
        with self._alone(upload_id) as (upload, fd):
            if upload.finished is not None:
                return upload.finished
            digest = Digest()
            while data := os.read(fd, CHUNK):
                digest.update(data)
            found = digest.checksums
            try:
                verify(upload.expected, found)
                verify(expected, found)
                new = NewObject(upload.bucket, upload.name, upload.fields, upload.preconditions)
                return self._core.commit(
                    new, upload_id, found, also=lambda written: self._core.database.finish_upload(upload_id, written)
                )
            except StoreError:
                self._drop(upload_id)
                raise

    def cancel(self, upload_id: str) -> None:
        """Ends an upload without an object; raises NoSuchResource if the upload does not exist."""
        with self._alone(upload_id), self._core.lock:
            self.get(upload_id)  # a finished upload has no file to lock, so another thread may have ended it by now
            self._drop(upload_id)

    def _path(self, upload_id: str) -> str:
        return f"{self._core.layout.incoming}/{upload_id}"

    @contextlib.contextmanager
    def _alone(self, upload_id: str) -> Iterator[tuple[Upload, int]]:
        """Lets one thread at a time work on an upload; yields its state, and a descriptor of its bytes."""
        self.get(upload_id)
        fd = -1
        with contextlib.ExitStack() as opened:
            with contextlib.suppress(FileNotFoundError):  # it has ended
                fd = os.open(self._path(upload_id), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                opened.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield self.get(upload_id), fd

    def _drop(self, upload_id: str) -> None:
        with self._core.lock:
            self._core.database.forget_upload(upload_id)
        with contextlib.suppress(FileNotFoundError):  # a finished upload has handed it over
            os.unlink(self._path(upload_id))


_MOST_PARTS = 10_000
_SMALLEST_PART = 5 << 20  # bytes; the last one may have fewer


class PartWriter(BodyWriter):
    """The body of a new part."""

    def __init__(self, core: Core, upload_id: str, number: int) -> None:
        super().__init__(core)
        self._upload_id = upload_id
        self._number = number

    def commit(self, expected: Checksums = Checksums()) -> UploadPart:  # noqa: B008 (it is frozen)
        """Turns the bytes so far into a part, which replaces an earlier part with its number.

        Raises Invalid for bytes with other checksums, and NoSuchResource if the upload has ended meanwhile.
        """
        with self:
            found = self._digest.checksums
            verify(expected, found)
            part = UploadPart(self._number, os.stat(self._path).st_size, time.time_ns() // 1000, found, self._body)
            with self._core.lock:
                upload = _recorded(self._core, self._upload_id)
                before = [old.body for old in upload.parts if old.number == part.number]
                self._core.database.put_part(self._upload_id, part)
            self._keep()
            self._core.bodies.drop(before)
            return part


class Multiparts:
    """The multipart uploads of a store, which never expire and survive the end of the process.

    Parts arrive in any order and at the same time, and are joined at the end.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def start(self, bucket: str, name: str, fields: ObjectFields = ObjectFields()) -> MultipartUpload:  # noqa: B008
        """Begins an upload, for which Google has no conditions."""
        check_object_name(name)
        upload = MultipartUpload(self._core.bodies.new_name(), bucket, name, fields, time.time_ns() // 1000)
        with self._core.lock:
            self._core.buckets.get(bucket)
            self._core.database.put_multipart(upload)
        return upload

    def get(self, upload_id: str) -> MultipartUpload:
        """Returns an upload with its parts; raises NoSuchResource for an unknown, completed or aborted one."""
        with self._core.lock:
            return _recorded(self._core, upload_id)

    def all(self, bucket: str) -> list[MultipartUpload]:
        """Returns the uploads to a bucket, without their parts, by name and then by start."""
        with self._core.lock:
            self._core.buckets.get(bucket)
            return self._core.database.multiparts(bucket)

    def open_part(self, upload_id: str, number: int) -> PartWriter:
        """Begins to write a part, numbered 1 to 10000; several may be written at the same time."""
        if not 1 <= number <= _MOST_PARTS:
            raise Invalid(f"Invalid part number {number}: it must be 1 to {_MOST_PARTS}")
        self.get(upload_id)
        return PartWriter(self._core, upload_id, number)

    def complete(self, upload_id: str, parts: Sequence[tuple[int, str]]) -> StoredObject:
        """Joins parts, given by number and ETag, into an object without MD5, as Google does; drops all other parts.

        Raises:
          NoSuchResource: the upload does not exist, or its bucket is gone.
          Invalid: no part is named, the parts are not in order, a part was not sent or has another ETag, or a part
            other than the last is too small.
        """
        upload = self.get(upload_id)
        sent = {part.number: part for part in upload.parts}
        _check(sent, parts)
        ended: list[str] = []
        with ObjectWriter(
            self._core,
            NewObject(upload.bucket, upload.name, upload.fields),
            md5=False,
            also=lambda _: ended.extend(self._end(upload_id)),
        ) as writer:
            for number, _ in parts:
                self._pour(sent[number].body, writer)
            written = writer.commit()
        self._core.bodies.drop(ended)
        return written

    def abort(self, upload_id: str) -> None:
        """Ends an upload without an object; raises NoSuchResource if the upload does not exist."""
        with self._core.lock:
            with self._core.database.transaction():
                bodies = self._end(upload_id)
            self._core.bodies.drop(bodies)

    def _end(self, upload_id: str) -> list[str]:
        """Forgets an upload, in a transaction; returns the bodies of all its parts, including late ones."""
        bodies = [part.body for part in _recorded(self._core, upload_id).parts]
        self._core.database.forget_multipart(upload_id)
        return bodies

    def _pour(self, body: str, writer: ObjectWriter) -> None:
        try:
            with open(f"{self._core.layout.incoming}/{body}", "rb", buffering=0) as file:
                while data := file.read(CHUNK):
                    writer.write(data)
        except FileNotFoundError:
            raise NoSuchResource("The upload was changed while it was completed.", code="NoSuchUpload") from None


def _recorded(core: Core, upload_id: str) -> MultipartUpload:
    found = core.database.multipart(upload_id)
    if found is None:
        raise NoSuchResource("The requested upload was not found.", code="NoSuchUpload")
    return found


def _check(sent: Mapping[int, UploadPart], wanted: Sequence[tuple[int, str]]) -> None:
    """Raises Invalid for parts that do not complete an upload."""
    numbers = [number for number, _ in wanted]
    if not numbers:
        raise Invalid("An upload is completed with at least one part.", code="MalformedXML")
    if numbers != sorted(set(numbers)):
        raise Invalid("The parts are not in ascending order.", code="InvalidPartOrder")
    for number, etag in wanted:
        part = sent.get(number)
        if part is None or part.etag != etag:
            has = "was not uploaded" if part is None else f"has the ETag {part.etag}, not {etag}"
            raise Invalid(f"Part {number} {has}.", code="InvalidPart")
    for number in numbers[:-1]:
        if sent[number].size < _SMALLEST_PART:
            raise Invalid(
                f"Part {number} has {sent[number].size} bytes: all but the last must have at least {_SMALLEST_PART}.",
                code="EntityTooSmall",
            )
