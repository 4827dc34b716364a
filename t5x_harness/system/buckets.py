"""The emulated Google Cloud that this process uses, seen from code that runs in it: where its objects lie on disk."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.variables import ROOT_VARIABLE, SHRINK_VARIABLE, SOURCE_VARIABLE, STANDINS_VARIABLE

_MOUNTED = re.compile(r"/(?:gcs|cns|bigstore)/[^/]*")
"""A bucket where Vertex AI mounts it, or another storage of Google's."""

_BUCKETS = "buckets"
"""The folder of a store's root that has a folder for each bucket."""

_PREFIXES = ("gs://", "/gcs/")
_OUTSIDE_A_TREE = ("", ".", "..")


def bucket_and_name(address: str) -> tuple[str, str] | None:
    """Returns the bucket and the object's name of ``gs://bucket/name`` or ``/gcs/bucket/name``.

    None for any other address.
    """
    for prefix in _PREFIXES:
        if address.startswith(prefix):
            bucket, _, name = address.removeprefix(prefix).partition("/")
            return (bucket, name) if bucket not in _OUTSIDE_A_TREE else None
    return None


@dataclasses.dataclass(frozen=True)
class Store:
    """A store of Cloud Storage's objects on this machine.

    Attributes:
      root: its folder; the object ``gs://b/x`` is the file ``buckets/b/x`` in it.
      source: the user's folder that it was filled from; None if it began empty.
      standins: for the stand-ins that processes of ``exec`` and ``serve`` make; None in any other process.
    """

    root: Path
    source: Path | None = None
    standins: Path | None = None

    def local(self, address: str) -> Path | None:
        """Returns where an object or a folder of objects lies.

        None for an address elsewhere, or that no file can have.
        """
        found = bucket_and_name(address)
        if found is None:
            return None
        bucket, name = found
        parts = name.rstrip("/").split("/") if name.rstrip("/") else []
        if any(part in _OUTSIDE_A_TREE for part in parts):
            return None
        return self.root.joinpath("buckets", bucket, *parts)

    def is_declared(self, address: str) -> bool:
        """Returns whether the user gave the bucket that an address is in: then what is missing there is missing."""
        found = bucket_and_name(address)
        if found is None:
            return False
        if self.standins is not None:
            return self._bucket(found[0]).is_dir() and not self._note(found[0]).exists()
        return self.source is not None and (self.source / found[0]).is_dir()

    def claim(self, address: str) -> None:
        """Notes that the bucket of a stand-in, which is about to be written, is none of the user's."""
        found = bucket_and_name(address)
        if found is not None and self.standins is not None and not self._bucket(found[0]).is_dir():
            note_undeclared(self.root, found[0])

    def _bucket(self, name: str) -> Path:
        return self.root / "buckets" / name

    def _note(self, bucket: str) -> Path:
        return _undeclared_note(self.root, bucket)


def note_undeclared(root: Path, bucket: str) -> None:
    """Notes that a bucket, which is about to be made, is none that the user gave: what it lacks may be generated."""
    note = _undeclared_note(root, bucket)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()


def _undeclared_note(root: Path, bucket: str) -> Path:
    """Returns the file that notes so."""
    return _standins_of(root) / "buckets" / bucket


def _standins_of(root: Path) -> Path:
    return root / ".t5x-harness" / "standins"


def store(environment: Mapping[str, str] | None = None) -> Store | None:
    """Returns the store behind this process's ``gs://``; None where no emulated Google Cloud was started for it.

    Args:
      environment: the process's own by default.
    """
    environment = os.environ if environment is None else environment
    root, source = environment.get(ROOT_VARIABLE), environment.get(SOURCE_VARIABLE)
    if not root:
        return None
    is_program = environment.get(STANDINS_VARIABLE) or environment.get(SHRINK_VARIABLE) == "1"
    standins = _standins_of(Path(root)) if is_program and not source else None
    return Store(Path(root), Path(source) if source else None, standins)


def on_disk(path: str) -> str:
    """Returns the path that the harness reads a file or folder by: that of its copy on this machine's disk, if any.

    Clients remember what they saw: TensorFlow keeps the size of an object for seconds, and refuses one that has
    shrunk since. A process that is about to run T5X must not have asked them for anything that the run may replace.
    """
    here = store()
    local = here.local(path) if here is not None else None
    return path if local is None else str(local)


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
    """Returns what to say of a root of an emulated Google Cloud whose folders are not seen there; empty for nothing."""
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


def is_remote(path: str) -> bool:
    """Returns whether a path lies in a bucket: by its address, or where machines of Google's mount it."""
    return "://" in path or _MOUNTED.match(path) is not None


def is_not_asked(path: str) -> bool:
    """Returns whether a path lies in a bucket that is not the user's own, in which no checkpoint is looked for here."""
    here = store()
    return is_remote(path) and not (here is not None and here.is_declared(path))


def is_unreachable(path: str) -> bool:
    """Returns whether a path lies in a bucket that cannot be seen from here.

    A bucket that answers that it has no such file is within reach: the path is wrong, and that error is the user's.
    So is a bucket that the user gave to the emulated Google Cloud; of any other, that has only what this run put into
    it.
    """
    here = store()
    local = here.local(path) if here is not None else None
    if here is None or local is None:
        return is_remote(path) and _cannot_be_asked(path)
    return not here.is_declared(path) and not local.exists()


@functools.lru_cache(maxsize=1024)
def _cannot_be_asked(path: str) -> bool:
    """Asks the storage that has the path, once for each: a client may try for long."""
    import tensorflow as tf

    if mounted := _MOUNTED.match(path):
        return not os.path.isdir(mounted[0])
    try:
        tf.io.gfile.exists(path)
    except (tf.errors.OpError, OSError):
        return True
    return False
