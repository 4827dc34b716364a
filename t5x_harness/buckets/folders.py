"""Folders on this machine and in buckets of Cloud Storage, behind the same few calls."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.buckets.addresses import GS, bucket_and_name, object_address

if TYPE_CHECKING:
    from google.cloud.storage import Blob, Client

COMMITTED = "commit_success.txt"
"""The object that orbax writes last into a checkpoint in a bucket, where no folder can be renamed."""

WITHOUT_CREDENTIALS = (
    "Run gcloud auth application-default login; without a cloud: submit --vertex=emulated, pytest "
    "--t5x-vertex=emulated, or any command in a shell of t5x-harness serve"
)
"""The fix if no Google credentials are found."""

_AT_ONCE = 8
_SECONDS = 60.0


class StorageError(Exception):
    """Cloud Storage refused a request; the message has the object, the service's own reason, and the fix."""


@dataclasses.dataclass(frozen=True)
class StagedFile:
    """A file that is put into a folder for a job."""

    name: str  # the name below the folder, with ``/``; never absolute and never with ``..``
    content: bytes = dataclasses.field(repr=False)  # the whole content


class Folder:
    """A folder in a bucket.

    Every method raises StorageError if the bucket does not exist or the service refuses.

    Args:
      address: ``gs://bucket/folder``.
      project: the project that is charged; None for the project of the process's own settings.
      client: a client of ``google.cloud.storage``; by default one with the process's own credentials.

    Raises:
      StorageError: the address names no bucket, or there are no credentials.
    """

    def __init__(self, address: str, project: str | None = None, client: Client | None = None) -> None:
        found = bucket_and_name(address)
        if found is None:
            raise StorageError(f"{address!r} names no bucket: give a folder of one, as gs://BUCKET/FOLDER")
        bucket, prefix = found[0], found[1].rstrip("/")
        self.address = f"{GS}{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client or _client(project)
        self._bucket = self._client.bucket(bucket)

    def put(self, files: Iterable[StagedFile]) -> int:
        """Writes the files that do not exist yet, and returns their number.

        The folder is named by a hash of its content, so a file that exists has the same content.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(pool.map(lambda file: self.create(file.name, file.content) is not None, files))

    def read(self, name: str) -> bytes | None:
        """Returns the content of an object, or None if it does not exist."""
        found = self.read_version(name)
        return None if found is None else found[0]

    def read_version(self, name: str) -> tuple[bytes, int] | None:
        """Returns the content and the generation of an object, or None if it does not exist."""
        from google.api_core import exceptions

        with _as_storage_error(f"{self.address}/{name}"):
            blob = self._blob(name)
            try:
                content: bytes = blob.download_as_bytes(timeout=_SECONDS)
            except exceptions.NotFound:
                self.require_bucket()
                return None
            return content, int(blob.generation)

    def create(self, name: str, content: bytes) -> int | None:
        """Writes a new object; returns its generation, or None if the object exists."""
        return self.replace(name, content, 0)

    def replace(self, name: str, content: bytes, version: int) -> int | None:
        """Overwrites the object of this generation; returns its new one, or None if the object has since changed."""
        from google.api_core import exceptions

        with _as_storage_error(f"{self.address}/{name}"):
            blob = self._blob(name)
            try:
                blob.upload_from_string(
                    content, content_type="application/octet-stream", if_generation_match=version, timeout=_SECONDS
                )
            except exceptions.PreconditionFailed:
                return None
            return int(blob.generation)

    def children(self, name: str = "") -> list[str]:
        """Returns the sorted names of the objects and folders directly in one of its folders."""
        prefix = f"{self._prefix}{name}/" if name else self._prefix
        with _as_storage_error(f"{self.address}/{name}"):
            listed = self._client.list_blobs(self._bucket, prefix=prefix, delimiter="/", timeout=_SECONDS)
            names = [blob.name for blob in listed]
            return sorted({each.removeprefix(prefix).rstrip("/") for each in (*names, *listed.prefixes)} - {""})

    def delete(self, name: str) -> None:
        """Removes an object, and all objects below it as a folder; ignores those that do not exist."""
        with _as_storage_error(f"{self.address}/{name}"):
            named = f"{self._prefix}{name}"
            self._bucket.delete_blobs([*self._below(f"{named}/"), named], on_error=lambda _: None, timeout=_SECONDS)

    def copy(self, name: str, to: str) -> bool:
        """Copies a folder's objects within the bucket, and last of all the object that commits a checkpoint.

        Returns whether the folder held the same objects from the start of the copy to its end.
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
            return bool(found) and self._below(source) == found  # otherwise it is being removed

    def names(self, below: str = "") -> Iterator[tuple[str, int]]:
        """Yields the name and the size in bytes of each object whose name begins with ``below``, sorted by name."""
        with _as_storage_error(f"{self.address}/{below}"):
            for blob in self._client.list_blobs(self._bucket, prefix=f"{self._prefix}{below}", timeout=_SECONDS):
                yield blob.name.removeprefix(self._prefix), blob.size or 0

    def require_bucket(self) -> None:
        """Raises StorageError if the bucket does not exist or may not be listed."""
        with _as_storage_error(f"{GS}{self._bucket.name}"):
            next(iter(self._client.list_blobs(self._bucket, max_results=1, timeout=_SECONDS)), None)

    def misplaced(self, region: str) -> str:
        """Returns a warning about the traffic that a job in ``region`` pays for if the bucket is in another region.

        The warning is empty if the bucket is in the same region, or its region may not be read.
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
        """Creates the bucket if it does not exist."""
        from google.api_core import exceptions

        with _as_storage_error(f"{GS}{self._bucket.name}"), contextlib.suppress(exceptions.Conflict):
            self._client.create_bucket(self._bucket, location=location, timeout=_SECONDS)

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
    """Turns the errors of Google's client into a StorageError that names the object and the fix."""
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
    except OSError as error:  # connection errors of requests are among these
        raise StorageError(f"{address}: Cloud Storage cannot be reached: {error}") from None


class LocalFolder:
    """A folder on this machine.

    All versions are 0: only the process that holds the lock writes, and the kernel keeps the lock while it lives.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.address = str(self.folder)

    def children(self, name: str = "") -> list[str]:
        """Returns the sorted names directly in one of its folders; empty if the folder does not exist."""
        try:
            return sorted(os.listdir(self.folder / name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read_version(self, name: str) -> tuple[bytes, int] | None:
        """Returns the content and the version of a file, or None if it does not exist."""
        try:
            return (self.folder / name).read_bytes(), 0
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, name: str, content: bytes) -> int | None:
        """Writes a new file, whole or not at all; returns its version, or None if the file exists."""
        written = self._written(name, content)
        try:
            os.link(written, self.folder / name)
        except FileExistsError:
            return None
        finally:
            written.unlink()
        return 0

    def replace(self, name: str, content: bytes, version: int) -> int | None:
        """Overwrites a file, whole or not at all; returns its version."""
        self._written(name, content).replace(self.folder / name)
        return 0

    def delete(self, name: str) -> None:
        """Removes a file, or a folder with its content; ignores a name that does not exist."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def copy(self, name: str, to: str) -> bool:
        """Copies a folder to a new name; returns whether the folder stayed complete until the end.

        The copied files are hard links, which cost no space and stay when the original names are removed.
        """
        target = self.folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        begun = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        source = self.folder / name
        before = _files_in(source)
        try:
            shutil.copytree(source, begun, copy_function=_link_or_copy)
            if not before or not before == _files_in(begun) == _files_in(source):  # it is being removed
                return False
            begun.rename(target)
        except (FileNotFoundError, shutil.Error):
            return False
        finally:
            shutil.rmtree(begun, ignore_errors=True)
        return True

    def _written(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        beside.write_bytes(content)
        return beside


AnyFolder = Folder | LocalFolder


def folder_at(address: str, project: str | None = None) -> AnyFolder:
    """Returns the folder at a path on this machine, or at ``gs://…`` or ``/gcs/…``.

    Raises:
      StorageError: the address names no bucket or another storage, or there are no credentials.
    """
    in_bucket = object_address(address)
    if in_bucket is None and "://" in address:
        raise StorageError(f"{address} is neither a folder of this machine nor one of a bucket, as gs://BUCKET/FOLDER")
    return LocalFolder(Path(address)) if in_bucket is None else Folder(in_bucket, project)


def _files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the file system has no links
        shutil.copy2(source, target)
