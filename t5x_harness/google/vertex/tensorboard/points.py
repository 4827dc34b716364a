"""The data points of time series: one for each step, the last that was written for it.

They are kept as they come, at the end of a list, so that writing costs the same however long a series is. What was
read of a list is remembered, so that reading again costs what came since.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard_data

from t5x_harness.google.vertex.api.resources import aspect_key
from t5x_harness.google.vertex.state import StateStore

__all__ = ["Points", "PointsOfSeries", "choose"]

_REMEMBERED = 64 << 20  # bytes of points
_Point = tensorboard_data.TimeSeriesDataPoint.pb()


@dataclasses.dataclass(frozen=True)
class PointsOfSeries:
    """What a time series has.

    Attributes:
      steps: in ascending order.
      by_step: the points.
    """

    steps: Sequence[int]
    by_step: Mapping[int, Any]

    def all(self) -> list[Any]:
        """The points in the order of their steps."""
        return [self.by_step[step] for step in self.steps]


class Points:
    """The points of all time series in a state.

    Args:
      state: keeps them.
    """

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._known: collections.OrderedDict[tuple[str, int], _Known] = collections.OrderedDict()

    def append(self, series: str, points: Iterable[Any]) -> None:
        """Writes points; those that there are for the same steps are replaced.

        Args:
          series: its full name.
          points: its new points.
        """
        self._state.append(_key(series), *(point.SerializeToString() for point in points))

    def read(self, series: Any) -> PointsOfSeries:
        """All points of a time series, given as its message."""
        identity = (series.name, series.create_time.ToNanoseconds())  # the same name may be given again
        with self._lock:
            known = self._known.setdefault(identity, _Known())
            self._known.move_to_end(identity)
            known.add(self._state.read(_key(series.name), known.count))
            found = PointsOfSeries(list(known.steps), known.by_step)
            self._forget_oldest()
        return found

    def size(self, tensorboard: str) -> int:
        """The bytes of all points in a Tensorboard."""
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
      count: of its elements.
      size: their bytes.
      steps: in ascending order.
      by_step: the points. They are replaced, never changed, as others may be reading them.
    """

    def __init__(self) -> None:
        self.count = self.size = 0
        self.steps: list[int] = []
        self.by_step: dict[int, Any] = {}

    def add(self, elements: Sequence[bytes]) -> None:
        """Takes up what was read since."""
        ordered = True
        for data in elements:
            point = _Point.FromString(data)
            if point.step not in self.by_step:
                ordered = ordered and (not self.steps or self.steps[-1] < point.step)
                self.steps.append(point.step)
            self.by_step[point.step] = point
            self.size += len(data)
        self.count += len(elements)
        if not ordered:
            self.steps.sort()


def choose(points: list[Any], most: int) -> list[Any]:
    """Some of the points, in their order, where there are more than can be told.

    The service chooses at random. Here the last point is always among them, as it is where TensorBoard itself chooses,
    and the same ones are chosen each time.

    Args:
      points: all of them.
      most: how many to choose, at least one.
    """
    if len(points) <= most:
        return points
    chosen = random.Random(len(points)).sample(range(len(points) - 1), most - 1)
    return [points[index] for index in sorted(chosen)] + points[-1:]


def _key(series: str) -> str:
    return aspect_key(series, "points")
