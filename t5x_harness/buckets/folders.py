"""A folder on this machine or in a bucket, behind the same few calls."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from t5x_harness.buckets.addresses import object_address
from t5x_harness.buckets.bucket_folder import Folder, StorageError


class AnyFolder(Protocol):
    """A folder; names are relative to it, with ``/`` between their parts."""

    address: str

    def children(self, name: str = "") -> Sequence[str]:
        """Returns the names directly in one of its folders; empty if there is no such folder."""

    def read_version(self, name: str) -> tuple[bytes, int] | None:
        """Returns the content and the version of a file, or None if it does not exist."""

    def create(self, name: str, content: bytes) -> int | None:
        """Writes a new file, whole or not at all; returns its version, or None if the file exists."""

    def replace(self, name: str, content: bytes, version: int, /) -> int | None:
        """Overwrites a file of this version; returns its new version, or None if it has another one by now."""

    def delete(self, name: str) -> None:
        """Removes a file, or a folder with its content; ignores a name that does not exist."""

    def copy(self, name: str, to: str) -> bool:
        """Copies a folder to a new name; returns whether it stayed whole until the end."""


def folder_at(address: str, project: str | None = None) -> AnyFolder:
    """Returns the folder at a path of this machine, or at ``gs://…`` or ``/gcs/…``.

    Raises:
      StorageError: the address names no bucket or another storage, or there are no credentials.
    """
    in_bucket = object_address(address)
    if in_bucket is None and "://" in address:
        raise StorageError(f"{address} is neither a folder of this machine nor one of a bucket, as gs://BUCKET/FOLDER")
    return LocalFolder(Path(address)) if in_bucket is None else Folder(in_bucket, project)


class LocalFolder:
    """A folder of this machine.

    All versions are 0: only the process that holds the lock writes, and the kernel keeps the lock while it lives.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.address = str(self.folder)

    def children(self, name: str = "") -> Sequence[str]:
        """Lists a folder."""
        try:
            return sorted(os.listdir(self.folder / name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read_version(self, name: str) -> tuple[bytes, int] | None:
        """Reads a file."""
        try:
            return (self.folder / name).read_bytes(), 0
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, name: str, content: bytes) -> int | None:
        """Writes a file beside the name and links it there, which fails if the name is taken."""
        written = self._written(name, content)
        try:
            os.link(written, self.folder / name)
        except FileExistsError:
            return None
        finally:
            written.unlink()
        return 0

    def replace(self, name: str, content: bytes, _version: int, /) -> int | None:
        """Writes a file beside the name and moves it there."""
        self._written(name, content).replace(self.folder / name)
        return 0

    def delete(self, name: str) -> None:
        """Removes a file or a folder."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def copy(self, name: str, to: str) -> bool:
        """Links the files, which costs no space; the links stay when the original names are removed."""
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


def _files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no links
        shutil.copy2(source, target)
