"""Which example of a task cannot be preprocessed, and by which of its preprocessors: TensorFlow names neither."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import seqio
import tensorflow as tf

from t5x_harness.resolve.datasets import DataRole, source_dataset
from t5x_harness.resolve.frames import definition_of
from t5x_harness.resolve.parties import USER
from t5x_harness.resolve.reading import Reading, read_within
from t5x_harness.spec import Location
from t5x_harness.upstream.seqio import preprocess

_SECONDS = 5.0
"""How long each of the preprocessors may take; only a run that has failed already waits for it."""
_LONGEST = 60


@dataclasses.dataclass(frozen=True)
class FailingExample:
    """An example that a preprocessor raises for.

    Attributes:
      index: the example's number in the source, from 0.
      known: whether the example alone makes it raise; if not, ``index`` is how many examples came out before.
      function: the preprocessor's name.
      location: where it is defined, if the user wrote it.
      shown: the example's features, shortened; empty if they are not known.
      error: what it raises.
    """

    index: int
    known: bool
    function: str
    location: Location | None
    shown: str
    error: Exception


def failing_example(task: seqio.Task, role: DataRole) -> FailingExample | None:
    """Applies more and more of a task's preprocessors, in order, until one raises while examples are read.

    Args:
      task: its own source is read, from the beginning and without shuffling.
      role: the dataset that it is part of.

    Returns:
      None if nothing is raised again in a bounded time, or something is raised before there is any example.
    """
    steps = _steps(task)
    all_read = True
    for number in range(1, len(steps) + 1):
        reading, error = _read(task, role, steps[:number])
        if error is None:
            all_read = all_read and reading.ended
            continue
        shown = _shown_if_it_raises_alone(task, role, steps[:number], reading.count)
        if shown is None and not all_read:
            return None  # an earlier preprocessor may raise for an example that there was no time for
        # If time was short, an earlier preprocessor than the last one may already raise for this example.
        first = number
        while shown is not None and first > 1:
            if _shown_if_it_raises_alone(task, role, steps[: first - 1], reading.count) is None:
                break
            first -= 1
        step = steps[first - 1]
        while hasattr(step, "func"):  # partials have it
            step = step.func
        name = getattr(inspect.unwrap(step), "__name__", type(step).__name__)
        place = definition_of(step)
        return FailingExample(
            reading.count,
            shown is not None,
            "a lambda" if name == "<lambda>" else name,
            place.location if place is not None and place.party == USER else None,
            shown or "",
            error,
        )
    return None


def columns_left(task: seqio.Task, role: DataRole) -> Sequence[str]:
    """Returns the features that a task's preprocessors leave, whatever the task declares."""
    return sorted(_preprocessed(task, role, source_dataset(task, role.dataset), _steps(task)).element_spec)


def is_empty(task: seqio.Task, role: DataRole) -> bool:
    """Tells whether a task's source has no example at all, so that its preprocessors are not at fault if they raise."""
    try:
        reading = read_within(
            lambda: source_dataset(task, role.dataset).as_numpy_iterator(), keep=1, count=1, seconds=1.0
        )
    except Exception:  # the source itself raises, which is another matter
        return False
    return reading.ended and not reading.count


def _steps(task: seqio.Task) -> list[Any]:
    return [step for step in task.preprocessors if not isinstance(step, seqio.CacheDatasetPlaceholder)]


def _preprocessed(task: seqio.Task, role: DataRole, dataset: tf.data.Dataset, steps: Sequence[Any]) -> tf.data.Dataset:
    with seqio.utils.map_seed_manager(role.dataset.seed):
        return preprocess(task, dataset, steps, role.dataset.task_feature_lengths)


def _read(task: seqio.Task, role: DataRole, steps: Sequence[Any]) -> tuple[Reading[Any], Exception | None]:
    """Reads through some preprocessors until one raises; returns what came before, and the exception or None."""
    raised: list[Exception] = []

    def examples() -> Iterator[Any]:
        # What is raised while the graph is made belongs to no example, and goes to the caller.
        iterator = _preprocessed(task, role, source_dataset(task, role.dataset), steps).as_numpy_iterator()
        try:
            yield from iterator
        except Exception as error:
            raised.append(error)

    reading = read_within(examples, keep=0, count=1_000_000_000, seconds=_SECONDS)
    return reading, raised[0] if raised else None


def _shown_if_it_raises_alone(task: seqio.Task, role: DataRole, steps: Sequence[Any], index: int) -> str | None:
    """Preprocesses one example of the source without the others; returns its features in words if that raises."""
    one = source_dataset(task, role.dataset).skip(index).take(1)
    try:
        list(_preprocessed(task, role, one, steps).as_numpy_iterator())
    except Exception:  # the same exception again, whatever it is
        return _shown(next(iter(one.as_numpy_iterator()), None))
    return None


def _shown(example: Any) -> str:
    """Describes an example by its values, shortened."""
    if not isinstance(example, dict):
        return ""
    shown = []
    for name, value in example.items():
        text = repr(value.decode(errors="replace") if isinstance(value, bytes) else value)
        shown.append(f"{name} {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}")
    return ", ".join(shown)
