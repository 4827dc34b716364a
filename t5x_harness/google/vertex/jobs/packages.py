"""Python packages of a job: fetched from the emulated storage, unpacked, and put on the import path.

The service installs them with pip. Here their modules are imported from where they are unpacked, because no package
index can be reached; their dependencies have to be installed already. No code of a package runs before the job runs it,
and nothing is written outside its folder.
"""

from __future__ import annotations

import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO

from t5x_harness.buckets.emulated import Store

_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_ZIP_SUFFIXES = (".whl", ".zip", ".egg")
MOST_BYTES = 1 << 30
"""The largest total size of the files in one package: a small archive can hold any number of zeros."""


class PackageError(Exception):
    """A package is missing, or cannot be used; the message says which, and why."""


def fetch_packages(uris: Iterable[str], store: Store, folder: Path) -> list[Path]:
    """Unpacks packages, each into a folder of its own.

    Args:
      uris: ``gs://`` addresses of source distributions and wheels.
      folder: the folder for all of them, which is made.

    Returns:
      The folders to put on the import path, in order.

    Raises:
      PackageError: one of them cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for number, uri in enumerate(uris):
        archive = store.local(uri) if uri.startswith("gs://") else None
        if archive is None or not archive.is_file():
            raise PackageError(f"the package {uri} of python_package_spec.package_uris is not there")
        target = folder / str(number)
        unpack(archive, target)
        found += import_path(target)
    return found


def unpack(archive: Path, target: Path) -> None:
    """Unpacks an archive into a new folder. Links, devices and paths out of the folder are refused.

    Raises:
      PackageError: the archive cannot be read, or is refused; then the folder is removed.
    """
    target.mkdir(parents=True)
    try:
        if archive.name.endswith(_TAR_SUFFIXES):
            _unpack_tar(archive, target)
        elif archive.name.endswith(_ZIP_SUFFIXES):
            _unpack_zip(archive, target)
        else:
            known = ", ".join((*_TAR_SUFFIXES[:1], *_ZIP_SUFFIXES[:2]))
            raise PackageError(f"the package {archive.name} is not an archive that is known here: {known}")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        shutil.rmtree(target)
        raise PackageError(f"the package {archive.name} cannot be unpacked: {error}") from error
    except PackageError:
        shutil.rmtree(target)
        raise


def import_path(folder: Path) -> list[Path]:
    """Returns the folders in an unpacked package from which its modules are imported.

    For a wheel it is the folder itself; for a source distribution the folder of the project, and ``src`` in it.
    """
    top = [entry for entry in folder.iterdir() if entry.is_dir()]
    is_source = len(top) == 1 and any((top[0] / name).is_file() for name in ("setup.py", "pyproject.toml", "PKG-INFO"))
    root = top[0] if is_source else folder
    source = root / "src"
    return [source, root] if is_source and source.is_dir() else [root]


def _unpack_tar(archive: Path, target: Path) -> None:
    total = 0
    with tarfile.open(archive) as tar:
        for entry in tar:
            path = target / _checked(archive, entry.name)
            if not (entry.isfile() or entry.isdir()):
                raise PackageError(f"the package {archive.name} holds {entry.name!r}, which is {_kind(entry)}")
            total = _counted(archive, total, entry.size)
            if entry.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif (source := tar.extractfile(entry)) is not None:
                _write(path, source, executable=bool(entry.mode & stat.S_IXUSR))


def _unpack_zip(archive: Path, target: Path) -> None:
    total = 0
    with zipfile.ZipFile(archive) as zipped:
        for entry in zipped.infolist():
            path = target / _checked(archive, entry.filename)
            mode = entry.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise PackageError(f"the package {archive.name} holds {entry.filename!r}, which is not a file")
            total = _counted(archive, total, entry.file_size)
            if entry.is_dir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                with zipped.open(entry) as source:
                    _write(path, source, executable=bool(mode & stat.S_IXUSR))


def _checked(archive: Path, name: str) -> PurePosixPath:
    """Returns a name in an archive as a path below the archive's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise PackageError(f"the package {archive.name} holds {name!r}, which leads out of its folder")
    return path


def _counted(archive: Path, total: int, size: int) -> int:
    if total + size > MOST_BYTES:
        raise PackageError(f"the package {archive.name} holds more than {MOST_BYTES >> 20} MB")
    return total + size


def _write(path: Path, source: IO[bytes], *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file that exists already is never written to: an archive that holds a name twice is refused.
    with open(path, "xb") as file:
        shutil.copyfileobj(source, file)
    path.chmod(0o755 if executable else 0o644)


def _kind(entry: tarfile.TarInfo) -> str:
    if entry.issym() or entry.islnk():
        return f"a link to {entry.linkname!r}"
    return "a device" if entry.isdev() else "no file"
