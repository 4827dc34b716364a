"""The files in the folder of a store.

<root>/buckets/<bucket>/<name>   the objects whose names a folder can hold: the tree that ``/gcs`` shows
<root>/.PRODUCT/storage.db   records of buckets, objects and uploads
<root>/.PRODUCT/incoming/    bodies on their way in
<root>/.PRODUCT/aside/       bodies of objects that the tree cannot hold
<root>/.PRODUCT/lock         the process that has the store open
<root>/.PRODUCT/reserve      space that is freed when the disk is full, so that objects can be read and deleted
"""

from __future__ import annotations

import os
from pathlib import Path

from t5x_harness.google.product import PRODUCT

LONGEST_PATH = 4095  # Linux' PATH_MAX without its NUL


class StoreLayout:
    """The paths of a store, whose folders are made if they do not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.buckets = str(self.root / "buckets")
        private = self.root / f".{PRODUCT}"
        self.database = private / "storage.db"
        self.lock = private / "lock"
        self.reserve = private / "reserve"
        self.incoming = str(private / "incoming")
        self.aside = str(private / "aside")
        for folder in (self.buckets, self.incoming, self.aside):
            os.makedirs(folder, exist_ok=True)
        self._longest_part = os.pathconf(self.buckets, "PC_NAME_MAX")

    def tree_path(self, bucket: str, name: str) -> str | None:
        """Returns the path at which the tree shows an object as a file, or None if no file can have its name."""
        if not self._fits(name):
            return None
        path = f"{self.buckets}/{bucket}/{name}"
        return path if len(path) * 4 <= LONGEST_PATH or len(os.fsencode(path)) <= LONGEST_PATH else None

    def folder_path(self, bucket: str, name: str) -> str | None:
        """Returns the path at which the tree shows an object such as ``a/b/`` as a folder, or None for other names."""
        return self.tree_path(bucket, name[:-1]) if name.endswith("/") else None

    def _fits(self, name: str) -> bool:
        """Returns whether every part between slashes can be the name of a file."""
        if "\0" in name:
            return False
        return all(
            part not in ("", ".", "..")
            and (len(part) * 4 <= self._longest_part or len(part.encode()) <= self._longest_part)
            for part in name.split("/")
        )
