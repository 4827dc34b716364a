"""Where a conversion writes: into a folder beside its place, which is moved there when it is complete.

Two conversions into one place exclude each other, and what one that was killed has left is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.conversion.errors import ConversionError

_LOCK = "lock"
_CONTENT = "content"


@contextlib.contextmanager
def written_whole(place: Path) -> Iterator[Path]:
    """Yields an empty folder that becomes ``place`` at the end; where the block raises, nothing is left.

    Args:
      place: a folder that is not there, or is empty.

    Raises:
      ConversionError: it holds something, another conversion writes it now, or it cannot be made.
    """
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


def _require_free(place: Path) -> None:
    if place.is_dir() and (names := sorted(path.name for path in place.iterdir())[:4]):
        raise ConversionError(f"{place} holds {', '.join(names)} already: name a folder that is not there")
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
