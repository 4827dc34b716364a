"""``/gcs/…`` in words and texts, rewritten to where the objects lie, for machines that let nobody mount."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import overload

# A path begins at the start of a word or after what may stand in front of one: quotes, = in options, : in lists of
# paths, brackets. After anything else (/mnt/gcs, ~/gcs, {root}/gcs, gs://b/gcs) it is a part of a longer path.
_GCS = re.compile(r"""(?:(?<=file://)|(?<![^\s"'`=:,;|@<>(\[{]))/gcs(?=[/\s"'`:,;|<>)\]}]|$)""")


def buckets_folder(root: str | os.PathLike[str]) -> str:
    """The folder of a store that holds a folder for each bucket: what ``/gcs`` shows."""
    return os.path.join(os.path.abspath(root), "buckets")


@overload
def rewrite(value: str, root: str | os.PathLike[str]) -> str: ...
@overload
def rewrite(value: Mapping[str, str], root: str | os.PathLike[str]) -> dict[str, str]: ...
@overload
def rewrite(value: list[str] | tuple[str, ...], root: str | os.PathLike[str]) -> list[str]: ...
def rewrite(
    value: str | list[str] | tuple[str, ...] | Mapping[str, str], root: str | os.PathLike[str]
) -> str | list[str] | dict[str, str]:
    """Puts the folder of a store's buckets in the place of ``/gcs`` wherever a path begins with it.

    Args:
      value: a text, such as a gin file's; or the words of a command; or an environment, whose values are rewritten.
    """
    folder = buckets_folder(root)
    if isinstance(value, str):
        return _GCS.sub(lambda _: folder, value)
    if isinstance(value, Mapping):
        return {name: _GCS.sub(lambda _: folder, text) for name, text in value.items()}
    return [_GCS.sub(lambda _: folder, word) for word in value]
