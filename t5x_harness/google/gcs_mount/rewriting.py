"""``/gcs/…`` in words and texts, rewritten to where the objects lie, for machines that let nobody mount."""

from __future__ import annotations

import os
import re

# A path begins at the start of a word or after what may stand in front of one: quotes, = in options, : in lists of
# paths, brackets. After anything else (/mnt/gcs, ~/gcs, {root}/gcs, gs://b/gcs) it is a part of a longer path.
_GCS = re.compile(r"""(?:(?<=file://)|(?<![^\s"'`=:,;|@<>(\[{]))/gcs(?=[/\s"'`:,;|<>)\]}]|$)""")


def buckets_folder(root: str | os.PathLike[str]) -> str:
    """Returns the folder of a store that holds a folder for each bucket: what ``/gcs`` shows."""
    return os.path.join(os.path.abspath(root), "buckets")


def rewrite(text: str, root: str | os.PathLike[str]) -> str:
    """Puts the folder of a store's buckets in the place of ``/gcs`` wherever a path in a text begins with it."""
    folder = buckets_folder(root)
    return _GCS.sub(lambda _: folder, text)
