"""The output of a conversion: a folder beside its place, which is moved there when it is complete, or a bucket.

Two conversions into one place exclude each other, and each removes the leftovers of a killed one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from etils import epath

from t5x_harness.buckets.addresses import GS, bucket_of
from t5x_harness.buckets.folders import COMMITTED, StorageError, folder_at
from t5x_harness.buckets.locks import Lock, locked
from t5x_harness.conversion.errors import ConversionError, first_line

_ASIDE = ".t5x-harness-convert"
_LOCK = f"{_ASIDE}.json"
_LAST = ("config.json", COMMITTED)


@contextlib.contextmanager
def written_whole(place: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields an empty folder that becomes ``place`` at the end; if the block raises, nothing is left.

    Args:
      place: a folder that does not exist or is empty; or an address such as ``gs://bucket/hf``, to which the content of
        the folder is copied, and last of all the files that make it complete for readers.

    Raises:
      ConversionError: the place is not empty, another conversion writes it now, or it cannot be made.
    """
    path = os.fspath(place)
    with _copied_to(path.rstrip("/")) if "://" in path else _moved_to(Path(path)) as folder:
        yield folder


@contextlib.contextmanager
def _copied_to(address: str) -> Iterator[Path]:
    place = epath.Path(address)
    with tempfile.TemporaryDirectory(prefix="t5x-harness-convert-") as scratch:
        try:
            _require_empty(place)
            with _alone_at(address) as lock:
                yield Path(scratch)
                _require_empty(place)
                files = (path for path in Path(scratch).rglob("*") if path.is_file())
                for path in sorted(files, key=lambda path: (path.name in _LAST, path)):
                    lock.renew()
                    epath.Path(path).copy(place / str(path.relative_to(scratch)))
        except ConversionError:
            raise
        except Exception as error:  # of the library for this kind of address
            raise ConversionError(f"{address} cannot be written: {first_line(error)}") from error


@contextlib.contextmanager
def _moved_to(place: Path) -> Iterator[Path]:
    _require_free(place)
    aside = place.parent / f".{place.name}{_ASIDE}"
    try:
        with _alone_at(str(place)) as lock:
            shutil.rmtree(aside, ignore_errors=True)  # of a killed conversion
            aside.mkdir(parents=True)
            try:
                yield aside
                lock.renew()
                _require_free(place)
                aside.rename(place)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except StorageError as error:
        raise ConversionError(f"{place} cannot be written: {error}") from None
    except OSError as error:
        raise ConversionError(f"{place} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _alone_at(place: str) -> Iterator[Lock]:
    """Locks a place by a file beside it, because T5X removes a checkpoint's folder that is not committed."""

    def refusal(who: str) -> ConversionError:
        return ConversionError(f"another conversion is writing {place}: {who}. Wait for it, or name another folder")

    parent, name = os.path.split(place)
    folder = parent if place != f"{GS}{bucket_of(place)}" else place
    with locked(folder_at(folder), f".{name}{_LOCK}", refusal) as lock:
        yield lock


def _require_empty(place: epath.Path | Path) -> None:
    found = (path.name for path in place.iterdir()) if place.is_dir() else ()
    if names := sorted(name for name in found if not name.endswith(_LOCK))[:4]:
        raise ConversionError(f"{place} holds {', '.join(names)} already: name a folder that is not there")


def _require_free(place: Path) -> None:
    _require_empty(place)
    for path in (place, *place.parents):
        if path.exists() and not path.is_dir():
            raise ConversionError(f"{path} is a file: name a folder that is not there")
