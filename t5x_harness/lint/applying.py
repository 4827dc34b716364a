"""Applies edits to the text of a file: whole lines change, every other byte stays."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from t5x_harness.spec import Edit

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_END = re.compile(r"(?:\r\n|\r|\n)\Z")

Group = tuple[Edit, ...]


def select(groups: Iterable[Group]) -> list[Group]:
    """Returns the groups of edits that can be applied together, first come, first served; no group is taken apart."""
    chosen: list[Group] = []
    taken: list[Edit] = []
    for group in groups:
        if not any(_collide(edit, other) for edit in group for other in taken):
            chosen.append(group)
            taken.extend(group)
    return chosen


def _collide(one: Edit, other: Edit) -> bool:
    """Returns whether two edits touch the same line; two insertions at one place do so only if they are equal."""
    if one.file != other.file:
        return False
    if one == other:
        return True
    return max(one.first, other.first) <= min(one.last, other.last) or any(
        insertion.last < insertion.first and replaced.first < insertion.first <= replaced.last
        for insertion, replaced in ((one, other), (other, one))
    )


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Applies edits of one file that do not touch the same line.

    Args:
      text: with the file's own line ends.
      edits: of this file; those in front of the same line keep their order.

    Returns:
      The text with new lines ended as the lines around them; whether the last line is ended stays as it was.
    """
    lines = [_cut_end(line) for line in _LINE.findall(text)]
    usual = next((end for _, end in lines if end), "\n")
    unended = bool(lines) and not lines[-1][1]
    for edit in sorted(edits, key=lambda edit: (edit.first, edit.last))[::-1]:
        neighbours = (*lines[edit.first - 1 : edit.last], *lines[max(edit.first - 2, 0) : edit.first])
        end = next((end for _, end in neighbours if end), usual)
        lines[edit.first - 1 : edit.last] = [(line, end) for line in edit.text.removesuffix("\n").split("\n")] * bool(
            edit.text
        )
    joined = "".join(f"{line}{end or usual}" for line, end in lines)
    return joined.rstrip("\r\n") if unended else joined


def _cut_end(line: str) -> tuple[str, str]:
    match = _END.search(line)
    return (line[: match.start()], match[0]) if match else (line, "")


def unified_diff(name: str, before: str, after: str) -> str:
    """Returns the change of one file as ``patch -p0`` and ``git apply -p0`` take it; empty for no change."""
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), name, name)
    return "".join(line if _END.search(line) else f"{line}\n\\ No newline at end of file\n" for line in lines)


def read_exactly(path: Path) -> str:
    """Returns a file's text with its own line ends.

    Raises:
      OSError: it cannot be read.
      UnicodeDecodeError: it is not UTF-8 text.
    """
    return path.read_bytes().decode("utf-8")


def write_atomically(path: Path, text: str) -> None:
    """Replaces the text of a file at once; its mode stays, and a link to it stays a link.

    Raises:
      OSError: it cannot be written; the file is unchanged.
    """
    target = Path(os.path.realpath(path))
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
