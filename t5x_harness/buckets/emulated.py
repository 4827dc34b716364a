"""The emulated Cloud Storage that this process uses, as files on disk, for code that runs in the process."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.buckets.addresses import OUTSIDE_A_TREE, bucket_and_name
from t5x_harness.variables import ROOT_VARIABLE, SHRINK_VARIABLE, SOURCE_VARIABLE, STANDINS_VARIABLE

_BUCKETS = "buckets"
"""The folder below a store's root that has a folder for each bucket."""


@dataclasses.dataclass(frozen=True)
class Store:
    """An emulated Cloud Storage, whose objects are files on this machine.

    Attributes:
      standins: the folder for the stand-ins that processes of ``exec`` and ``serve`` make; None in any other process.
    """

    root: Path  # the store's folder; the object ``gs://b/x`` is the file ``buckets/b/x`` below it
    source: Path | None = None  # the user's folder that the store was filled from; None if it began empty
    standins: Path | None = None

    def local(self, address: str) -> Path | None:
        """Returns the path of an object or a folder of objects.

        Returns None for an address that is not in a bucket, or that no file can have.
        """
        found = bucket_and_name(address)
        if found is None:
            return None
        bucket, name = found
        parts = name.rstrip("/").split("/") if name.rstrip("/") else []
        if any(part in OUTSIDE_A_TREE for part in parts):
            return None
        return self._bucket(bucket).joinpath(*parts)

    def is_declared(self, address: str) -> bool:
        """Tells whether the user provided the bucket of an address; files that such a bucket lacks are missing."""
        found = bucket_and_name(address)
        if found is None:
            return False
        if self.standins is not None:
            return self._bucket(found[0]).is_dir() and not _undeclared_note(self.root, found[0]).exists()
        return self.source is not None and (self.source / found[0]).is_dir()

    def claim(self, address: str) -> None:
        """Notes that the bucket of a stand-in that is about to be written is not one of the user's."""
        found = bucket_and_name(address)
        if found is not None and self.standins is not None and not self._bucket(found[0]).is_dir():
            note_undeclared(self.root, found[0])

    def _bucket(self, name: str) -> Path:
        return self.root / _BUCKETS / name


def note_undeclared(root: Path, bucket: str) -> None:
    """Notes that the user did not provide a bucket that is about to be created; its missing files may be generated."""
    note = _undeclared_note(root, bucket)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()


def _undeclared_note(root: Path, bucket: str) -> Path:
    return _standins_of(root) / _BUCKETS / bucket


def _standins_of(root: Path) -> Path:
    return root / ".t5x-harness" / "standins"


def store(environment: Mapping[str, str] | None = None) -> Store | None:
    """Returns the store behind ``gs://`` in a process with these variables; None without an emulated cloud."""
    environment = os.environ if environment is None else environment
    root, source = environment.get(ROOT_VARIABLE), environment.get(SOURCE_VARIABLE)
    if not root:
        return None
    is_program = environment.get(STANDINS_VARIABLE) or environment.get(SHRINK_VARIABLE) == "1"
    standins = _standins_of(Path(root)) if is_program and not source else None
    return Store(Path(root), Path(source) if source else None, standins)


def local_path(address: str) -> Path | None:
    """Returns the file that is an object of this process's emulated storage; None for any other address."""
    here = store()
    return None if here is None else here.local(address)


def on_disk(path: str) -> str:
    """Returns the path at which the harness itself reads a file or folder: on disk if the emulated storage has it.

    Clients remember what they saw: TensorFlow keeps the size of an object for seconds, and refuses one that has
    shrunk since. A process that is about to run T5X must not have asked them for anything that the run may replace.
    """
    return str(local_path(path) or path)


def buckets_in(folder: str) -> str:
    """Returns the folder that has a folder for each bucket.

    That is ``folder``, or its ``buckets`` if it is the root of an emulated Google Cloud, as ``serve --root`` keeps it.
    """
    try:
        names = {name for name in os.listdir(folder) if not name.startswith(".")}
        below = os.path.join(folder, _BUCKETS)
        is_root = names == {_BUCKETS} and all(entry.is_dir() for entry in os.scandir(below))
    except OSError:
        return folder
    return below if is_root else folder


def misplaced_buckets(root: Path) -> str:
    """Returns a warning about folders in the root of an emulated Google Cloud that are not used as buckets.

    The warning is empty if there are none.
    """
    try:
        names = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return ""
    if not names or _BUCKETS in names:
        return ""
    return (
        f"{root} has no folder {_BUCKETS}, so it begins without a bucket: gs://{names[0]}/x would be "
        f"{root / _BUCKETS / names[0] / 'x'}; move folders there that are buckets"
    )
