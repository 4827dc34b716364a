"""Rewrites ``/gcs/…`` in words and texts to the files of the store, for machines that allow no mounts."""

from __future__ import annotations

import os
import re

# A path begins at the start of a word, or after quotes, = in options, : in lists of paths, or brackets. After anything
# else (/mnt/gcs, ~/gcs, {root}/gcs, gs://b/gcs) it is a part of a longer path.
_GCS = re.compile(r"""(?:(?<=file://)|(?<![^\s"'`=:,;|@<>(\[{]))/gcs(?=[/\s"'`:,;|<>)\]}]|$)""")


def buckets_folder(root: str | os.PathLike[str]) -> str:
    """Returns the folder of a store that ``/gcs`` shows, with a folder for each bucket."""
    return os.path.join(os.path.abspath(root), "buckets")


def rewrite(text: str, root: str | os.PathLike[str]) -> str:
    """Replaces ``/gcs`` at the start of each path in a text by the folder of a store's buckets."""
    folder = buckets_folder(root)
    return _GCS.sub(lambda _: folder, text)
