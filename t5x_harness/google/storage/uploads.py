"""Resumable uploads: received bytes survive broken connections and killed servers until the upload ends."""

import contextlib
import dataclasses
import fcntl
import os
import time
from collections.abc import Iterator

from t5x_harness.google.storage.core import CHUNK, Core, Digest, TreeView, verify
from t5x_harness.google.storage.errors import Invalid, NoSuchResource, StoreError
from t5x_harness.google.storage.names import check_object_name
from t5x_harness.google.storage.streams import write_all
from t5x_harness.google.storage.values import (
    ANY,
    Checksums,
    NewObject,
    ObjectFields,
    Preconditions,
    StoredObject,
    Upload,
)

_LIFETIME = 7 * 24 * 3600 * 1_000_000  # microseconds: Google's sessions expire after a week


class Uploads:
    """The resumable uploads of a store; any thread may use any upload at any time."""

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
        with self._alone(upload_id):
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
