"""A folder on this machine or in a bucket, with the same few calls: listed, read, written, copied within itself."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from t5x_harness.vertex.paths import object_address
from t5x_harness.vertex.storage import Folder, StorageError


class Place(Protocol):
    """A folder; names are relative to it, with ``/`` between their parts."""

    address: str

    def children(self, name: str = "") -> Sequence[str]:
        """Returns the names of what lies directly in one of its folders; empty where there is no such folder."""

    def read(self, name: str) -> tuple[bytes, int] | None:
        """Returns a file's content and version; None where there is no such file."""

    def create(self, name: str, content: bytes) -> int | None:
        """Writes a file that is not there yet, whole or not at all; returns its version, None where it is there."""

    def replace(self, name: str, content: bytes, version: int) -> int | None:
        """Writes a file anew; returns its version, None where it is not of ``version`` any more."""

    def delete(self, name: str) -> None:
        """Removes a file, or a folder with all that is in it; what is not there is as good as removed."""

    def copy(self, name: str, to: str) -> bool:
        """Copies a folder to where none is; returns whether it was there to the end."""


def place_at(address: str, project: str | None = None) -> Place:
    """Returns the folder at a path of this machine, or at ``gs://…`` or ``/gcs/…``.

    Raises:
      StorageError: the address names no bucket, or is another storage's, or there are no credentials.
    """
    in_bucket = object_address(address)
    if in_bucket is None and "://" in address:
        raise StorageError(f"{address} is neither a folder of this machine nor one of a bucket, as gs://BUCKET/FOLDER")
    return LocalPlace(Path(address)) if in_bucket is None else BucketPlace(in_bucket, project)


class LocalPlace:
    """A folder of this machine.

    Versions say nothing here: the one process writes that has the lock, which the kernel knows as long as it lives.
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

    def read(self, name: str) -> tuple[bytes, int] | None:
        """Reads a file."""
        try:
            return (self.folder / name).read_bytes(), 0
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, name: str, content: bytes) -> int | None:
        """Writes beside it, and links it to its name, which fails where that is taken."""
        written = self._written(name, content)
        try:
            os.link(written, self.folder / name)
        except FileExistsError:
            return None
        finally:
            written.unlink()
        return 0

    def replace(self, name: str, content: bytes, version: int) -> int | None:
        """Writes beside it, and moves it to its name."""
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
        """Links the files, which costs no room; they stay when the names that they had are removed."""
        target = self.folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        begun = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        source = self.folder / name
        before = _files_in(source)
        try:
            shutil.copytree(source, begun, copy_function=_linked)
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


class BucketPlace:
    """A folder of a bucket; versions are the generations of its objects."""

    def __init__(self, address: str, project: str | None = None) -> None:
        self._folder = Folder(address, project)
        self.address = self._folder.address

    def children(self, name: str = "") -> Sequence[str]:
        """Lists objects, and what stands for folders."""
        return self._folder.children(name)

    def read(self, name: str) -> tuple[bytes, int] | None:
        """Reads an object."""
        return self._folder.read_generation(name)

    def create(self, name: str, content: bytes) -> int | None:
        """Writes an object that is not there."""
        return self._folder.write(name, content, generation=0)

    def replace(self, name: str, content: bytes, version: int) -> int | None:
        """Writes an object of this generation anew."""
        return self._folder.write(name, content, generation=version)

    def delete(self, name: str) -> None:
        """Removes an object, and all whose names begin with it and ``/``."""
        self._folder.delete(name)

    def copy(self, name: str, to: str) -> bool:
        """Copies objects within the bucket; the one that says that a checkpoint is finished comes last."""
        return self._folder.copy(name, to)


def _files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no links
        shutil.copy2(source, target)
