"""Rows that a user declares to replace data: a task's source, or a Hugging Face dataset.

They are declared in ``[tool.t5x_harness.samples]`` of a pyproject.toml or by a fixture, and reach the run's process as
text. ``datasets.load_dataset`` returns them as the library's own objects, so ``take``, ``skip``, ``shuffle`` and
``map`` are the real methods. If the library is not installed, the user's import of it fails as it would in a job.
"""

import contextlib
import csv
import dataclasses
import functools
import json
import os
import re
import socket
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Self

from t5x_harness.spec import StandInPolicy
from t5x_harness.system.after_import import after_import

EVERY_SPLIT = "*"
"""The name that represents all splits without declared rows."""

USUAL_SPLITS = ("train", "validation", "test")
"""The splits of data that does not name its splits."""

HUGGING_FACE = "hf:"
"""The prefix of the name of a Hugging Face dataset. Names of tasks have no prefix."""

Row = Mapping[str, Any]


class SampleError(ValueError):
    """Declared rows cannot be used. The message says which ones and why."""


@dataclasses.dataclass(frozen=True)
class Samples:
    """Rows that replace a source.

    Attributes:
      name: the name of the task, or of the Hugging Face dataset after ``hf:``, with its config after a second colon:
        ``hf:allenai/c4:en``.
      splits: the rows by split; rows under ``*`` are for every other split.
    """

    name: str
    splits: Mapping[str, Sequence[Row]]

    def rows(self, split: str) -> Sequence[Row] | None:
        """Returns the rows of a split, or None if nothing is declared for it."""
        return self.splits.get(split, self.splits.get(EVERY_SPLIT))

    @property
    def number(self) -> int:
        """The number of declared rows."""
        return sum(map(len, self.splits.values()))

    def to_text(self) -> str:
        """Returns one line of text that :meth:`from_text` reads."""
        return json.dumps({"name": self.name, "splits": {k: list(v) for k, v in self.splits.items()}})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads a text that :meth:`to_text` wrote."""
        return cls(**json.loads(text))


def declared(name: str, value: Any, folder: Path) -> Samples:
    """Makes rows from the value that a user wrote.

    Args:
      name: the task, or the dataset with ``hf:`` in front.
      value: a list of rows, the name of a file with rows, or a mapping from splits to either.
      folder: the folder that relative file names start from.

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
      SampleError: the columns differ, or the values are not rows.
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
    """Reads the rows of a file in the format that its suffix names.

    ``.jsonl`` has one object per line, ``.tsv`` and ``.csv`` begin with a line of column names, and each line of a
    ``.txt`` file is a row with the column ``text``.

    Raises:
      SampleError: the file cannot be read, or has another suffix.
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


_SHARDS = 8
"""The number of shards of a stream. Large datasets have many, which jobs divide among their hosts."""

_FROM_FILES = ("json", "csv", "text", "parquet", "arrow", "pandas", "imagefolder", "audiofolder", "webdataset")
"""The loaders that read files named by the user."""

_OUT_OF_REACH = "cannot reach its dataset here, and no rows are declared for it"
_REQUEST = re.compile(rf"(load_dataset\([^\n]*?\) {_OUT_OF_REACH}): (.+)")


class MissingRows(LookupError):
    """A dataset on the hub cannot be reached, and no rows are declared for it."""


@dataclasses.dataclass(frozen=True)
class RowsRequest:
    """The missing dataset, and how to provide it."""

    message: str
    fix: str


def request_in(text: str) -> RowsRequest | None:
    """Finds the request of a :class:`MissingRows` in the text of an exception, including TensorFlow's."""
    found = _REQUEST.search(text)
    return RowsRequest(*found.groups()) if found else None


def install_rows(samples: Sequence[Samples], policy: StandInPolicy, note: Callable[[str, str], None]) -> None:
    """Makes ``load_dataset`` return declared rows in this process, as soon as ``datasets`` is imported.

    Args:
      samples: the declared rows; rows for tasks are ignored.
      policy: when rows replace a dataset.
      note: called with a dataset and a description of its replacement.
    """
    declared = [each for each in reversed(samples) if each.name.startswith(HUGGING_FACE)]  # the first of each name wins
    rows = {each.name.removeprefix(HUGGING_FACE): each for each in declared}

    def put_in(module: Any) -> None:
        loader = _Loader(module, rows, policy, note)
        module.load_dataset = module.load.load_dataset = functools.update_wrapper(loader, loader.original)

    after_import("datasets", put_in)


class _Loader:
    """Replaces ``load_dataset``."""

    def __init__(
        self, module: ModuleType, rows: Mapping[str, Samples], policy: StandInPolicy, note: Callable[[str, str], None]
    ) -> None:
        now: Any = module.load_dataset
        self.original: Any = now.original if isinstance(now, _Loader) else now
        self._module: Any = module
        self._rows = rows
        self._policy = policy
        self._note = note

    def __call__(self, path: str, name: str | None = None, *args: Any, **options: Any) -> Any:
        full_name = f"{path}:{name}" if name else path
        if samples := self._rows.get(full_name) or self._rows.get(path):
            self._note(full_name, f"{samples.number} declared rows")
            split = options.get("split")
            whole = None if split is None else str(split)
            return _load(self._module, samples, whole, streaming=bool(options.get("streaming")))
        if self._policy is StandInPolicy.OFF or path in _FROM_FILES or os.path.exists(path):
            return self.original(path, name, *args, **options)
        try:
            if self._policy is StandInPolicy.MISSING:
                # If the hub is out of reach, this reads the local cache at once instead of after retries.
                with contextlib.nullcontext() if _is_within_reach() else self._offline():
                    return self.original(path, name, *args, **options)
        except ConnectionError:
            pass
        call = f"load_dataset({', '.join(map(repr, filter(None, (path, name))))})"
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        caller = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "load_dataset"
        raise MissingRows(
            f"{caller}: {call} {_OUT_OF_REACH}: give a few in [tool.t5x_harness.samples] of pyproject.toml, "
            f'"{HUGGING_FACE}{full_name}" = "rows.jsonl", or in a test with the fixture fake_hf_dataset'
        )

    @contextlib.contextmanager
    def _offline(self) -> Iterator[None]:
        import huggingface_hub.constants

        places = (self._module.config, huggingface_hub.constants)
        before = [place.HF_HUB_OFFLINE for place in places]
        try:
            for place in places:
                place.HF_HUB_OFFLINE = True
            yield
        finally:
            for place, value in zip(places, before, strict=True):
                place.HF_HUB_OFFLINE = value


def _load(module: Any, samples: Samples, split: str | None, *, streaming: bool) -> Any:
    """Returns declared rows as ``load_dataset`` does: ``train``, ``train[:10%]``, ``train+test``, or all for None.

    All are the declared splits, and the usual ones if rows are for all. Streams have only whole splits.

    Raises:
      ValueError: nothing is declared for such a split.
    """
    every = samples.rows(EVERY_SPLIT)
    usual = dict.fromkeys(USUAL_SPLITS, every) if every is not None else {}
    splits = usual | {name: rows for name, rows in samples.splits.items() if name != EVERY_SPLIT}

    def dataset_of(rows: Sequence[Row]) -> Any:
        dataset = module.Dataset.from_list(list(rows))
        return dataset.to_iterable_dataset(num_shards=min(_SHARDS, len(rows))) if streaming else dataset

    def named(name: str) -> Sequence[Row]:
        rows = samples.rows(name)
        if rows is None:
            raise ValueError(f"Bad split: {name}. Available splits: {list(splits)}")
        return rows

    if split is None:
        kind = module.IterableDatasetDict if streaming else module.DatasetDict
        return kind({name: dataset_of(rows) for name, rows in splits.items()})
    if streaming:
        return dataset_of(named(split))
    from datasets.arrow_reader import ReadInstruction

    sizes = {part: len(named(part)) for part in (text.partition("[")[0] for text in split.split("+"))}
    parts = ReadInstruction.from_spec(split).to_absolute(sizes)
    return dataset_of([row for part in parts for row in named(part.splitname)[part.from_ : part.to]])


@functools.cache
def _is_within_reach() -> bool:
    """Tells whether the hub's name can be looked up."""
    host = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
