"""The data points of time series: for each step, the last point that was written.

Points are appended to a list, so that writing takes the same time however long a series is. What was read of a list is
remembered, so that reading again only takes the time for newer points.
"""

from __future__ import annotations

import bisect
import collections
import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from google.cloud.aiplatform_v1.types import tensorboard_data

from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.state import StateStore

Element = TypeVar("Element")

_REMEMBERED = 256 << 20  # bytes, including Python's overhead
_OVERHEAD = 160  # bytes: an int, a bytes object, and the references to them
_Point = tensorboard_data.TimeSeriesDataPoint.pb()


class PointsOfSeries:
    """The points of a time series, as they were when it was read.

    Args:
      steps: the steps in ascending order. More may be appended.
      by_step: the serialized points by step. They may be replaced.
    """

    def __init__(self, steps: Sequence[int], by_step: Mapping[int, bytes]) -> None:
        self._steps = steps
        self._count = len(steps)
        self._by_step = by_step

    def all(self) -> list[Any]:
        """Returns the points in the order of their steps."""
        return list(self.after(None))

    def after(self, step: int | None) -> Iterator[Any]:
        """Yields the points after a step, or all for None, in the order of their steps."""
        first = 0 if step is None else bisect.bisect_right(self._steps, step, hi=self._count)
        for index in range(first, self._count):
            yield _Point.FromString(self._by_step[self._steps[index]])

    def some(self, most: int) -> list[Any]:
        """Returns some of the points; see :func:`choose`."""
        indices = choose(range(self._count), most)
        return [_Point.FromString(self._by_step[self._steps[index]]) for index in indices]


class Points:
    """The points of all time series in a state."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._known: collections.OrderedDict[tuple[str, int], _Known] = collections.OrderedDict()

    def append(self, series: str, points: Iterable[Any]) -> None:
        """Writes points, which replace earlier points of the same steps."""
        self._state.append(_key(series), *(point.SerializeToString() for point in points))

    def forget(self, series: str) -> None:
        """Removes all points of a time series.

        Args:
          series: the full name of the time series.
        """
        self._state.delete(_key(series))

    def read(self, series: Any) -> PointsOfSeries:
        """Returns all points of a time series.

        Args:
          series: the message of the time series.
        """
        identity = (series.name, series.create_time.ToNanoseconds())  # a name may be used again
        with self._lock:
            known = self._known.setdefault(identity, _Known())
            self._known.move_to_end(identity)
            known.add(self._state.read(_key(series.name), known.count))
            found = PointsOfSeries(known.steps, known.by_step)
            self._forget_oldest()
        return found

    def size(self, tensorboard: str) -> int:
        """Returns the size of all points in a Tensorboard, in bytes."""
        keys = [key for key in self._state.keys(f"{tensorboard}/") if key.endswith(_key(""))]
        return sum(len(data) for key in keys for data in self._state.read(key))

    def _forget_oldest(self) -> None:
        size = sum(known.size for known in self._known.values())
        while size > _REMEMBERED and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            size -= oldest.size


class _Known:
    """What was read of one list.

    Attributes:
      count: how many elements were read.
      size: the approximate size of this object, in bytes.
      steps: the steps in ascending order. It is only appended to, because other threads may be reading it.
      by_step: the serialized points by step.
    """

    def __init__(self) -> None:
        self.count = self.size = 0
        self.steps: list[int] = []
        self.by_step: dict[int, bytes] = {}

    def add(self, elements: Sequence[bytes]) -> None:
        """Adds newly read elements."""
        between = set()
        for data in elements:
            step = _Point.FromString(data).step
            if step not in self.by_step:
                if self.steps and step < self.steps[-1]:
                    between.add(step)
                else:
                    self.steps.append(step)
            self.by_step[step] = data
            self.size += len(data) + _OVERHEAD
        self.count += len(elements)
        if between:
            self.steps = sorted([*self.steps, *between])


def choose(elements: Sequence[Element], most: int) -> Sequence[Element]:
    """Returns at most a number of elements, in their order.

    The service chooses at random. Here the choice is the same each time, and always has the last element, as
    TensorBoard's own choice does.

    Args:
      elements: the elements.
      most: how many to choose, at least one.
    """
    if len(elements) <= most:
        return elements
    chosen = random.Random(len(elements)).sample(range(len(elements) - 1), most - 1)
    return [*(elements[index] for index in sorted(chosen)), elements[-1]]


def _key(series: str) -> str:
    return aspect_key(series, "points")
