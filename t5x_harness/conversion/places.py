"""Where a conversion writes: into a folder beside its place, which is moved there when it is complete; or to a bucket.

Two conversions into one place exclude each other, and what one that was killed has left is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from etils import epath

from t5x_harness.conversion.errors import ConversionError, first_line

COMMITTED = "commit_success.txt"
"""What orbax wants in a checkpoint at gs://: without it, one that is there is taken for one that was never finished."""

_LOCK = "lock"
_CONTENT = "content"
_LAST = ("config.json", COMMITTED)


@contextlib.contextmanager
def written_whole(place: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields an empty folder that becomes ``place`` at the end; where the block raises, nothing is left.

    Args:
      place: a folder that is not there, or is empty; or an address such as ``gs://bucket/hf``, to which what is in the
        folder is copied: what makes it complete for those who read it, last.

    Raises:
      ConversionError: it holds something, another conversion writes it now, or it cannot be made.
    """
    path = os.fspath(place)
    with _copied_to(path) if "://" in path else _moved_to(Path(path)) as folder:
        yield folder


@contextlib.contextmanager
def _copied_to(address: str) -> Iterator[Path]:
    place = epath.Path(address)
    with tempfile.TemporaryDirectory(prefix="t5x-harness-convert-") as scratch:
        try:
            _require_empty(place)
            yield Path(scratch)
            _require_empty(place)
            files = (path for path in Path(scratch).rglob("*") if path.is_file())
            for path in sorted(files, key=lambda path: (path.name in _LAST, path)):
                epath.Path(path).copy(place / str(path.relative_to(scratch)))
        except ConversionError:
            raise
        except Exception as error:  # of whichever library has this kind of address
            raise ConversionError(f"{address} cannot be written: {first_line(error)}") from error


@contextlib.contextmanager
def _moved_to(place: Path) -> Iterator[Path]:
    _require_free(place)
    aside = place.parent / f".{place.name}.t5x-harness-convert"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(aside)
    except OSError as error:
        raise ConversionError(f"{place} cannot be written: {error.strerror or error}") from None
    if lock is None:
        raise ConversionError(f"another conversion is writing {place}: wait for it, or name another folder")
    try:
        content = aside / _CONTENT
        shutil.rmtree(content, ignore_errors=True)  # of one that was killed
        content.mkdir()
        try:
            yield content
        except OSError as error:
            raise ConversionError(f"{place} cannot be written: {error.strerror or error}") from error
        _require_free(place)
        content.rename(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(lock)


def _require_empty(place: epath.Path | Path) -> None:
    if place.is_dir() and (names := sorted(path.name for path in place.iterdir())[:4]):
        raise ConversionError(f"{place} holds {', '.join(names)} already: name a folder that is not there")


def _require_free(place: Path) -> None:
    _require_empty(place)
    for path in (place, *place.parents):
        if path.exists() and not path.is_dir():
            raise ConversionError(f"{path} is a file: name a folder that is not there")


def _locked(folder: Path) -> int | None:
    """Makes a folder and locks it for as long as this process lives; None where another process has it."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # its owner has just removed it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(folder / _LOCK)):
                return lock
        os.close(lock)
