"""Cloud Storage as jobs need it: files are put there, and read from there, and what goes wrong is said as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from t5x_harness.vertex.errors import WITHOUT_CREDENTIALS
from t5x_harness.vertex.files import StagedFile
from t5x_harness.vertex.paths import GS, bucket_of

if TYPE_CHECKING:
    from google.cloud.storage import Blob, Client

COMMITTED = "commit_success.txt"
"""The object that orbax writes last into a checkpoint in a bucket, where no folder can be renamed."""

_AT_ONCE = 8
_SECONDS = 60.0


class StorageError(Exception):
    """Cloud Storage refused; the message has the object, the service's own reason, and what can be done."""


class Folder:
    """A folder of a bucket.

    Args:
      address: ``gs://bucket/folder``.
      project: the project that is charged; None for that of the process's own settings.
      client: of ``google.cloud.storage``; by default one with the process's own credentials.

    Raises:
      StorageError: the address names no bucket, or there are no credentials.
    """

    def __init__(self, address: str, project: str | None, client: Client | None = None) -> None:
        if not bucket_of(address):
            raise StorageError(f"{address!r} names no bucket: give a folder of one, as gs://BUCKET/FOLDER")
        bucket, _, prefix = address.removeprefix(GS).rstrip("/").partition("/")
        self.address = f"{GS}{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client or _client(project)
        self._bucket = self._client.bucket(bucket)

    def put(self, files: Iterable[StagedFile]) -> int:
        """Writes files that are not there yet; returns how many were.

        The folder is named by a hash of what is in it, so that a file that is there already is the same.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(pool.map(self._put, files))

    def read(self, name: str) -> bytes | None:
        """Returns a whole object; None where there is none.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        from google.api_core import exceptions

        with _as_storage_error(f"{self.address}/{name}"):
            try:
                content: bytes = self._blob(name).download_as_bytes(timeout=_SECONDS)
            except exceptions.NotFound:
                self.require_bucket()
                return None
            return content

    def read_generation(self, name: str) -> tuple[bytes, int] | None:
        """Returns a whole object and its generation; None where there is none.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        from google.api_core import exceptions

        with _as_storage_error(f"{self.address}/{name}"):
            blob = self._blob(name)
            try:
                content: bytes = blob.download_as_bytes(timeout=_SECONDS)
            except exceptions.NotFound:
                self.require_bucket()
                return None
            return content, int(blob.generation)

    def write(self, name: str, content: bytes, *, generation: int) -> int | None:
        """Writes an object whose generation is this one, 0 where there is none yet.

        Returns:
          Its new generation; None where it has another one, so that nothing was written.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        from google.api_core import exceptions

        with _as_storage_error(f"{self.address}/{name}"):
            blob = self._blob(name)
            try:
                blob.upload_from_string(content, if_generation_match=generation, timeout=_SECONDS)
            except exceptions.PreconditionFailed:
                return None
            return int(blob.generation)

    def children(self, name: str = "") -> list[str]:
        """Returns the names of the objects and folders directly in one of its folders, sorted.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        prefix = f"{self._prefix}{name}/" if name else self._prefix
        with _as_storage_error(f"{self.address}/{name}"):
            listed = self._client.list_blobs(self._bucket, prefix=prefix, delimiter="/", timeout=_SECONDS)
            names = [blob.name for blob in listed]
            return sorted({each.removeprefix(prefix).rstrip("/") for each in (*names, *listed.prefixes)} - {""})

    def delete(self, name: str) -> None:
        """Removes an object, and all objects below it as a folder; the ones that are not there are passed over.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        with _as_storage_error(f"{self.address}/{name}"):
            named = f"{self._prefix}{name}"
            self._bucket.delete_blobs([*self._below(f"{named}/"), named], on_error=lambda _: None, timeout=_SECONDS)

    def copy(self, name: str, to: str) -> bool:
        """Copies a folder's objects within the bucket, that which commits a checkpoint after all others.

        Returns:
          Whether all of them were there.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        from google.api_core import exceptions

        with _as_storage_error(f"{self.address}/{name}"), ThreadPoolExecutor(_AT_ONCE) as pool:
            source, target = f"{self._prefix}{name}/", f"{self._prefix}{to}/"
            found = self._below(source)
            last = [each for each in found if each in (f"{source}{COMMITTED}", f"{source}checkpoint")]

            def copy(each: str) -> None:
                copied, token = self._bucket.blob(each.replace(source, target, 1)), None
                while True:
                    token, _, _ = copied.rewrite(self._bucket.blob(each), token=token, timeout=_SECONDS)
                    if token is None:
                        return

            try:
                for some in ([each for each in found if each not in last], last):
                    list(pool.map(copy, some))
            except exceptions.NotFound:
                self.require_bucket()
                return False
            return bool(found) and self._below(source) == found  # else somebody is removing it

    def names(self, below: str = "") -> Iterator[tuple[str, int]]:
        """Yields the names of the objects whose names begin with ``below``, and their sizes in bytes, sorted by name.

        Raises:
          StorageError: the bucket is not there, or refuses.
        """
        with _as_storage_error(f"{self.address}/{below}"):
            for blob in self._client.list_blobs(self._bucket, prefix=f"{self._prefix}{below}", timeout=_SECONDS):
                yield blob.name.removeprefix(self._prefix), blob.size or 0

    def require_bucket(self) -> None:
        """Refuses a bucket that is not there.

        Raises:
          StorageError: it is not there, or may not be looked at.
        """
        with _as_storage_error(f"{GS}{self._bucket.name}"):
            next(iter(self._client.list_blobs(self._bucket, max_results=1, timeout=_SECONDS)), None)

    def misplaced(self, region: str) -> str:
        """Returns what a job in a region pays for if the bucket is in another.

        Empty where it is not, or may not be seen.
        """
        with contextlib.suppress(StorageError), _as_storage_error(f"{GS}{self._bucket.name}"):
            self._bucket.reload(timeout=_SECONDS)  # needs storage.buckets.get, which writing objects does not
            theirs = str(self._bucket.location or "").lower()
            if self._bucket.location_type == "region" and theirs != region:
                return (
                    f"{GS}{self._bucket.name} is in {theirs} and the job in {region}: what it reads and writes is "
                    "slower, and paid for as traffic between regions"
                )
        return ""

    def create_bucket(self, location: str) -> None:
        """Makes the bucket where it is not there.

        Raises:
          StorageError: it cannot be made.
        """
        from google.api_core import exceptions

        with _as_storage_error(f"{GS}{self._bucket.name}"), contextlib.suppress(exceptions.Conflict):
            self._client.create_bucket(self._bucket, location=location, timeout=_SECONDS)

    def _put(self, file: StagedFile) -> int:
        from google.api_core import exceptions

        with _as_storage_error(f"{self.address}/{file.name}"):
            try:
                self._blob(file.name).upload_from_string(
                    file.content, content_type="application/octet-stream", if_generation_match=0, timeout=_SECONDS
                )
            except exceptions.PreconditionFailed:  # it is there
                return 0
            return 1

    def _below(self, prefix: str) -> list[str]:
        return [blob.name for blob in self._client.list_blobs(self._bucket, prefix=prefix, timeout=_SECONDS)]

    def _blob(self, name: str) -> Blob:
        return self._bucket.blob(f"{self._prefix}{name}")


def _client(project: str | None) -> Client:
    try:
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud import storage
    except ImportError as error:
        raise StorageError(
            f"buckets need google-cloud-storage, not installed here ({error}): pip install 't5x-harness[vertex]'"
        ) from None

    try:
        return storage.Client(project=project)
    except DefaultCredentialsError as error:
        raise StorageError(f"no Google credentials here: {error}. {WITHOUT_CREDENTIALS}") from None


@contextlib.contextmanager
def _as_storage_error(address: str) -> Iterator[None]:
    """Says what the service said of an object, and whose move it is."""
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    bucket = address.removeprefix(GS).partition("/")[0]
    try:
        yield
    except exceptions.NotFound as error:
        raise StorageError(
            f"{address}: 404, {error.message}. Is there a bucket {bucket}? It can be made by "
            f"gcloud storage buckets create gs://{bucket}"
        ) from None
    except exceptions.Forbidden as error:
        raise StorageError(
            f"{address}: 403, {error.message}. This account needs roles/storage.objectAdmin on gs://{bucket}, as the "
            "account of the job does"
        ) from None
    except exceptions.GoogleAPICallError as error:
        raise StorageError(f"{address}: {error.code}, {error.message}") from None
    except GoogleAuthError as error:
        raise StorageError(f"{address}: no valid credentials: {error}") from None
    except OSError as error:  # requests' connection errors are
        raise StorageError(f"{address}: Cloud Storage cannot be reached: {error}") from None
