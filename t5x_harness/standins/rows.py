"""Rows that a user declares to replace data: a task's source, or a dataset of Hugging Face.

They are declared in ``[tool.t5x_harness.samples]`` of a pyproject.toml or by a fixture, and go to the run's process as
text.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

EVERY_SPLIT = "*"
"""A split's name that stands for all splits without rows of their own."""

USUAL_SPLITS = ("train", "validation", "test")
"""The splits of data that does not say which it has."""

HUGGING_FACE = "hf:"
"""The prefix of a Hugging Face dataset's name; tasks' names have none."""

Row = Mapping[str, Any]


class SampleError(ValueError):
    """Declared rows cannot be used; the message says which and why."""


@dataclasses.dataclass(frozen=True)
class Samples:
    """Rows that replace a source.

    Attributes:
      name: the task's name, or a Hugging Face dataset's with ``hf:`` in front, and its config after a second colon:
        ``hf:allenai/c4:en``.
      splits: rows by split; rows under ``*`` are for every other split.
    """

    name: str
    splits: Mapping[str, Sequence[Row]]

    def rows(self, split: str) -> Sequence[Row] | None:
        """Returns the rows of a split, or None if nothing is declared for it."""
        return self.splits.get(split, self.splits.get(EVERY_SPLIT))

    def to_text(self) -> str:
        """Returns one line of text that :meth:`from_text` reads."""
        return json.dumps({"name": self.name, "splits": {k: list(v) for k, v in self.splits.items()}})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads a text that :meth:`to_text` wrote."""
        return cls(**json.loads(text))


def declared(name: str, value: Any, folder: Path) -> Samples:
    """Makes rows of what a user wrote.

    Args:
      name: the task, or the dataset with ``hf:`` in front.
      value: a list of rows, the name of a file with rows, or a mapping from splits to either.
      folder: the folder that relative names of files start from.

    Raises:
      SampleError: the value is none of these, a file cannot be read, or the rows have different columns.
    """
    parts = value if isinstance(value, Mapping) else {EVERY_SPLIT: value}
    if not parts:
        raise SampleError(f"{name} has no rows")
    splits = {}
    for split, part in parts.items():
        rows = read_rows(folder / part) if isinstance(part, str) else part
        splits[split] = _checked(rows, name if split == EVERY_SPLIT else f"{name}, split {split}")
    return Samples(name, splits)


def _checked(rows: Any, what: str) -> list[Row]:
    """Returns rows after checking that they all have the same columns.

    Raises:
      SampleError: they do not, or are not rows.
    """
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not all(isinstance(row, Mapping) for row in rows):
        raise SampleError(f"{what}: give a list of rows (tables of columns), or the name of a file, not {rows!r}")
    if not rows:
        raise SampleError(f"{what} has no rows")
    for number, row in enumerate(rows):
        if missing := sorted(rows[0].keys() - row.keys()):
            raise SampleError(f"{what}: row {number} lacks {', '.join(missing)}, which row 0 has")
        if further := sorted(row.keys() - rows[0].keys()):
            raise SampleError(f"{what}: row {number} has {', '.join(further)}, which row 0 lacks")
    return [dict(row) for row in rows]


def read_rows(file: Path) -> list[Row]:
    """Reads the rows of a file, by its suffix.

    ``.jsonl`` has one object a line, ``.tsv`` and ``.csv`` begin with a line of column names, and each line of a
    ``.txt`` file is a row with the column ``text``.

    Raises:
      SampleError: the file cannot be read, or is of another kind.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SampleError(f"{file} cannot be read: {error}") from None
    lines = text.splitlines()
    match file.suffix:
        case ".jsonl" | ".json":
            return [_object(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
        case ".tsv":
            return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        case ".csv":
            return list(csv.DictReader(lines))
        case ".txt":
            return [{"text": line} for line in lines]
    raise SampleError(f"{file}: rows are read from .jsonl, .tsv, .csv and .txt files")


def _object(file: Path, number: int, line: str) -> Row:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise SampleError(f"{file}:{number}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SampleError(f"{file}:{number}: one JSON object a line, not {line.strip()[:40]}")
    return found
