"""Features whose sampled values say nothing: the same in every example, empty, or a tensor's description as text."""

import contextlib
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from t5x_harness.resolve.datasets import DataRole, source_dataset
from t5x_harness.resolve.pipeline import preprocessed, steps_of
from t5x_harness.resolve.samples import Sample, read_within

_TENSOR = re.compile(r"\bTensor\b.{0,200}?\bshape=\(", re.DOTALL)
"""The beginning of the text that Python makes of a tensor, in a graph or outside."""

_SECONDS = 5.0
"""Seconds to read the examples after each preprocessor; only a sample that is suspicious waits for them."""

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Origin:
    """The reason why a feature is the same in all examples, as far as its preprocessors show it.

    Attributes:
      step: the preprocessor before which the values differ, and after which they are the same; None if there is none.
      moved: whether that preprocessor also keeps the values, under another name.
      unused: the text columns of the source that differ, although no text of an output feature contains them.
    """

    step: Any = None
    moved: bool = False
    unused: tuple[str, ...] = ()


def target_text(example: Row, feature: str, vocabulary: seqio.Vocabulary) -> str:
    """Returns the text behind a feature of an example, as SeqIO's evaluator sees it.

    Args:
      example: a preprocessed example.
      feature: the feature's name.
      vocabulary: decodes the feature if the example does not have the text that was tokenized.
    """
    text = example.get(f"{feature}_pretokenized", example.get(feature))
    if isinstance(text, np.ndarray) and text.ndim == 1 and text.dtype.kind in "iu":
        text = vocabulary.decode([int(token) for token in text])
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def formatted_tensor(sample: Sample, feature: str) -> str | None:
    """Returns the text of a feature whose every sampled value shows a tensor's description; None if one does not."""
    vocabulary = sample.task.output_features[feature].vocabulary
    first = None
    for example in sample.examples:
        text = ""
        with contextlib.suppress(Exception):  # a vocabulary that cannot decode shows no text
            text = target_text(example, feature, vocabulary)
        if not _TENSOR.search(text):
            return None
        first = first or text
    return first


def step_with_tensor(role: DataRole, task: seqio.Task) -> Any:
    """Returns the first preprocessor after which a text of the first row shows a tensor's description, or None.

    Args:
      role: the dataset that the task is part of.
      task: the task, whose source is read from the beginning.

    Raises:
      Exception: the task's source or a preprocessor raises it.
    """
    steps = steps_of(task)
    for count, step in enumerate(steps, start=1):
        texts = [v for row in _rows(role, task, steps[:count], 1) for v in row.values() if isinstance(v, bytes)]
        if any(_TENSOR.search(text.decode(errors="replace")) for text in texts):
            return step
    return None


def is_same(values: Sequence[Any]) -> bool:
    """Tells whether there are at least two values, all of them equal."""
    return len(values) > 1 and all(np.array_equal(value, values[0]) for value in values[1:])


def blank(values: Sequence[Any], eos: int | None) -> str | None:
    """Returns what a feature has instead of tokens in all of its values, in words; None if one has a token.

    Args:
      values: the ids of the feature in each example.
      eos: the end-of-sequence id, if there is one.
    """
    if not values or any(np.ndim(value) != 1 or np.asarray(value).dtype.kind not in "iu" for value in values):
        return None
    tokens = {int(token) for value in values for token in value}
    if not tokens:
        return "empty"
    if tokens == {0}:
        return "nothing but padding (the id 0)"
    return f"nothing but the end-of-sequence id {eos}" if tokens <= {0, eos} else None


def origin_of(role: DataRole, task: seqio.Task, feature: str, number: int) -> Origin:
    """Applies one more of a task's preprocessors at a time to its first rows, to see where a feature's values go.

    Args:
      role: the dataset that the task is part of.
      task: the task, whose source is read from the beginning and without shuffling.
      feature: the name of the feature.
      number: the number of rows.

    Raises:
      Exception: the task's source or a preprocessor raises it.
    """
    steps = steps_of(task)
    rows = source = _rows(role, task, steps[:0], number)
    found = Origin()
    for count, step in enumerate(steps, start=1):
        before, rows = rows, _rows(role, task, steps[:count], number)
        # A step that drops, joins or splits examples leaves others than it was given.
        if len(before) == len(rows) and _differ(_column(before, feature)) and is_same(_column(rows, feature)):
            found = Origin(step, moved=_holds(rows, _column(before, feature), but=feature))
    return dataclasses.replace(found, unused=_unused(source, rows) if len(source) == len(rows) else ())


def _rows(role: DataRole, task: seqio.Task, steps: Sequence[Any], number: int) -> Sequence[Row]:
    """Returns what some of a task's preprocessors make of its source's first rows; a line of text has no columns."""

    def examples() -> Any:
        return preprocessed(task, role, source_dataset(task, role.dataset).take(number), steps).as_numpy_iterator()

    kept = read_within(examples, keep=number, count=number, seconds=_SECONDS).kept
    return [row if isinstance(row, dict) else {} for row in kept]


def _column(rows: Sequence[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if name in row]


def _differ(values: Sequence[Any]) -> bool:
    return len(values) > 1 and not is_same(values)


def _holds(rows: Sequence[Row], values: Sequence[Any], but: str) -> bool:
    """Tells whether another column of rows has these values."""
    names = {name for row in rows for name in row} - {but}
    return any(all(map(np.array_equal, column, values)) for name in names if len(column := _column(rows, name)))


def _unused(source: Sequence[Row], rows: Sequence[Row]) -> tuple[str, ...]:
    """Returns the text columns of a source that differ, and whose texts are in none of the rows made of them."""
    texts = [[value for value in row.values() if isinstance(value, bytes)] for row in rows]

    def is_unused(column: Sequence[Any]) -> bool:
        if len(column) < len(rows) or not all(isinstance(value, bytes) and value for value in column):
            return False
        return not any(value in text for value, row in zip(column, texts, strict=True) for text in row)

    columns = {name: _column(source, name) for name in sorted({name for row in source for name in row})}
    return tuple(name for name, column in columns.items() if _differ(column) and is_unused(column))
