"""Which example of a task cannot be preprocessed, and by which of its preprocessors: TensorFlow names neither."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import seqio
import tensorflow as tf

from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.parties import is_users, shown_path
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
      index: of the example in the source's order, from 0.
      known: whether the example alone makes it raise; else it is how many the preprocessor gave before.
      function: the preprocessor's name.
      location: where it is defined, if the user has written it.
      shown: the example's features, shortened; empty where they are not known.
      error: what it raises.
    """

    index: int
    known: bool
    function: str
    location: Location | None
    shown: str
    error: Exception


def failing_example(task: seqio.Task, role: DataRole) -> FailingExample | None:
    """Applies a task's preprocessors one after the other, in order, and finds the first that raises while it is read.

    Args:
      task: its own source is read, from the beginning and without shuffling.
      role: the dataset that it is part of.

    Returns:
      None where none raises again in a bounded time, or one raises before there is any example.
    """
    steps = _steps(task)
    all_read = True
    for number in range(1, len(steps) + 1):
        reading, error = _read(task, role, steps[:number])
        if error is None:
            all_read = all_read and reading.ended
            continue
        alone = _Alone(task, role, steps[:number], reading.count)
        if not alone.raises and not all_read:
            return None  # an earlier one may raise behind what there was time for
        # The last of those that were read may not be the first that the example makes raise: time was short.
        first = number
        while alone.raises and first > 1 and _Alone(task, role, steps[: first - 1], reading.count).raises:
            first -= 1
        step = steps[first - 1]
        return FailingExample(reading.count, alone.raises, _name(step), _definition(step), alone.shown, error)
    return None


def columns_left(task: seqio.Task, role: DataRole) -> Sequence[str]:
    """Returns the features that a task's preprocessors leave, whatever the task declares."""
    return sorted(_preprocessed(task, role, _source(task, role), _steps(task)).element_spec)


def is_empty(task: seqio.Task, role: DataRole) -> bool:
    """Returns whether a task's source has no example at all: what its preprocessors then raise says nothing of them."""
    try:
        reading = read_within(lambda: _source(task, role).as_numpy_iterator(), keep=1, count=1, seconds=1.0)
    except Exception:  # the source itself raises; that is another matter
        return False
    return reading.ended and not reading.count


def _steps(task: seqio.Task) -> list[Any]:
    return [step for step in task.preprocessors if not isinstance(step, seqio.CacheDatasetPlaceholder)]


def _source(task: seqio.Task, role: DataRole) -> tf.data.Dataset:
    return task.source.get_dataset(split=role.dataset.split, shuffle=False, seed=role.dataset.seed)


def _preprocessed(task: seqio.Task, role: DataRole, dataset: tf.data.Dataset, steps: Sequence[Any]) -> tf.data.Dataset:
    with seqio.utils.map_seed_manager(role.dataset.seed):
        return preprocess(task, dataset, steps, role.dataset.task_feature_lengths)


def _read(task: seqio.Task, role: DataRole, steps: Sequence[Any]) -> tuple[Reading[Any], Exception | None]:
    """Yields what comes through some preprocessors before one raises, and what it raises; None for nothing."""
    raised: list[Exception] = []

    def examples() -> Iterator[Any]:
        # What is raised while the graph is made belongs to no example, and goes to the caller.
        iterator = _preprocessed(task, role, _source(task, role), steps).as_numpy_iterator()
        try:
            yield from iterator
        except Exception as error:
            raised.append(error)

    reading = read_within(examples, keep=0, count=1_000_000_000, seconds=_SECONDS)
    return reading, raised[0] if raised else None


class _Alone:
    """The example of one index in the source, given to the preprocessors without the others."""

    def __init__(self, task: seqio.Task, role: DataRole, steps: Sequence[Any], index: int) -> None:
        one = _source(task, role).skip(index).take(1)
        self.raises = False
        self.shown = ""
        try:
            list(_preprocessed(task, role, one, steps).as_numpy_iterator())
        except Exception:  # the same again, whatever it is
            self.raises = True
            self.shown = _shown(next(iter(one.as_numpy_iterator()), None))


def _shown(example: Any) -> str:
    """Returns an example in a few words: its short values."""
    if not isinstance(example, dict):
        return ""
    shown = []
    for name, value in example.items():
        text = repr(value.decode(errors="replace") if isinstance(value, bytes) else value)
        shown.append(f"{name} {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}")
    return ", ".join(shown)


def _function(step: Any) -> Any:
    while hasattr(step, "func"):  # of partials
        step = step.func
    return inspect.unwrap(step)


def _name(step: Any) -> str:
    name = getattr(_function(step), "__name__", type(step).__name__)
    return "a lambda" if name == "<lambda>" else name


def _definition(step: Any) -> Location | None:
    code = getattr(_function(step), "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    return Location(shown_path(code.co_filename), code.co_firstlineno)
