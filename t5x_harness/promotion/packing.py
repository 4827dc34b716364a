"""Packs a test into one archive: its module or package, its conftests, and the files that its marker lists.

The archive depends only on the names and contents of the files, so the same test is the same object in the bucket.
"""

import dataclasses
import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

LIMIT = 64 * 2**20
"""The limit for all files together, in bytes; larger files belong in a bucket."""

_CONFTEST = "conftest.py"


class PackingError(ValueError):
    """A test cannot be packed, or an archive is invalid; the message says why and how to fix it."""


@dataclasses.dataclass(frozen=True)
class TestArchive:
    """A packed test.

    Attributes:
      names: the sorted names of its files, relative to pytest's root folder.
      content: the archive, a gzipped tar.
    """

    __test__ = False  # pytest would collect it because of its name

    names: tuple[str, ...]
    content: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the archive, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()


def listed_files(root: Path, module: Path, globs: Sequence[str] = (), settings: Path | None = None) -> tuple[Path, ...]:
    """Returns the sorted files that a test is packed with.

    Args:
      root: pytest's root folder.
      module: the test's module.
      globs: further files, relative to ``root``.
      settings: pytest's ini file.

    Raises:
      PackingError: a file is outside ``root``, or a glob matches nothing.
    """
    root = root.resolve()
    found = {_inside(root, module, "the test's module"), *_package(module)}
    above = (folder / _CONFTEST for folder in module.resolve().parents if folder.is_relative_to(root))
    found.update(conftest for conftest in above if conftest.is_file())
    if settings is not None and settings.is_file() and settings.resolve().is_relative_to(root):
        found.add(settings)
    for glob in globs:
        found.update(_matches(root, glob))
    return tuple(sorted({_inside(root, path, "a file to ship") for path in found}))


def pack(root: Path, files: Sequence[Path]) -> TestArchive:
    """Packs files.

    Args:
      root: the folder to which names in the archive are relative.
      files: the result of :func:`listed_files`.

    Raises:
      PackingError: the files are larger than :data:`LIMIT`, or one cannot be read.
    """
    root = root.resolve()
    if (size := sum(path.stat().st_size for path in files)) > LIMIT:
        largest = max(files, key=lambda path: path.stat().st_size).relative_to(root)
        raise PackingError(
            f"the files to ship have {size / 2**20:.0f} MiB, and {LIMIT // 2**20} MiB is the limit; the largest is "
            f"{largest}: put it into a bucket and read it from there"
        )
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for path in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())  # without modification time and owner
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return TestArchive(tuple(path.relative_to(root).as_posix() for path in files), buffer.getvalue())


def unpack(archive: TestArchive, digest: str, folder: Path) -> None:
    """Unpacks an archive into an empty folder.

    Raises:
      PackingError: the archive has another digest, or an entry is not a plain file inside the folder.
    """
    if archive.digest != digest:
        raise PackingError(f"the archive's SHA-256 is {archive.digest}, and {digest} was sent: something replaced it")
    try:
        with tarfile.open(fileobj=io.BytesIO(archive.content), mode="r:gz") as content:
            entries = content.getmembers()
            for entry in entries:
                path = PurePosixPath(entry.name)
                if path.is_absolute() or ".." in path.parts or not path.parts:
                    raise PackingError(f"the archive's entry {entry.name!r} leads out of its folder")
                if not entry.isfile():
                    raise PackingError(f"the archive's entry {entry.name!r} is not a plain file")
            content.extractall(folder, entries, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise PackingError(f"the archive cannot be unpacked: {error}") from None


def _inside(root: Path, path: Path, what: str) -> Path:
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise PackingError(
            f"{what}, {path}, lies outside pytest's root folder {root}, so it is not shipped; copy it into the project"
        )
    # The file is packed under its name, even if that is a link, because the test opens it by this name.
    return root / path.absolute().relative_to(root) if path.absolute().is_relative_to(root) else resolved


def _package(module: Path) -> Iterator[Path]:
    """Yields the Python files of the outermost package that contains a module, if any."""
    top = None
    folder = module.parent
    while (folder / "__init__.py").is_file():
        top, folder = folder, folder.parent
    if top is not None:
        yield from (path for path in top.rglob("*.py") if path.is_file())


def _matches(root: Path, glob: str) -> list[Path]:
    pattern = PurePosixPath(glob)
    if pattern.is_absolute() or ".." in pattern.parts:
        raise PackingError(f"files: {glob!r} leads out of pytest's root folder; globs are relative to it")
    found = [path for path in root.glob(glob) if path.is_file() and "__pycache__" not in path.parts]
    if not found:
        folder = f"; for all of a folder write {glob.rstrip('/')}/**/*" if (root / glob).is_dir() else ""
        raise PackingError(f"files: {glob!r} matches no file below {root}{folder}")
    return found
