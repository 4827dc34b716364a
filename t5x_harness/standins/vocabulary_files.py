"""SeqIO's vocabularies on generated files, if their own cannot be reached.

A vocabulary keeps the path that the user gave it, by which it is compared, and which reports and config.gin show.  If
there is an emulated Google Cloud, the file is put into its bucket at that path, for every client to read.  Otherwise
SeqIO opens another file for that path.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from t5x_harness.buckets.emulated import store
from t5x_harness.buckets.reach import is_replaced
from t5x_harness.spec import StandInPolicy
from t5x_harness.standins.vocabularies import model_of, size_of


class VocabularyFiles:
    """Which file stands for which path, the same one each time.

    Args:
      folder: where the files are written.
      policy: when a file is generated.
      rows: how many rows the model's embedding has; None if that is not known.
      note: called once for each path, with the path and what took its place.
    """

    def __init__(self, folder: Path, policy: StandInPolicy, rows: int | None, note: Callable[[str, str], None]) -> None:
        self._folder = folder
        self._policy = policy
        self._rows = rows
        self._note = note
        self._files: dict[str, str] = {}
        self._generated: set[str] = set()

    def install(self) -> None:
        """Has SeqIO open these files in this process; if several runs share it, the last run's files count."""
        from t5x_harness.upstream.seqio import open_vocabulary_files

        open_vocabulary_files(self.file_for)

    def file_for(self, path: str, extra_ids: int) -> str:
        """Returns the file to open for ``path``: itself, or one generated for a vocabulary with ``extra_ids``."""
        if path not in self._files:
            self._files[path] = self._make(path, extra_ids) if is_replaced(str(path), self._policy) else path
        return self._files[path]

    def replaces(self, path: str) -> bool:
        """Tells whether the file that was opened for ``path`` is generated."""
        return path in self._generated

    def _make(self, path: str, extra_ids: int) -> str:
        size = size_of(path, rows=self._rows, extra_ids=extra_ids)
        here = store()
        object_file = here.local(path) if here is not None else None
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{hashlib.sha256(path.encode()).hexdigest()[:12]}.model"
        file.write_bytes(model_of(size))
        if here is not None and object_file is not None:
            here.claim(path)
            object_file.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, object_file)  # whole, where both are on one disk
        self._generated.add(path)
        sentinels = f", {size.sentinels} of them sentinels" if size.sentinels else ""
        self._note(path, f"{size.total:,} generated pieces{sentinels}")
        return path if object_file is not None else str(file)
