"""The metrics of a run, read from the event files below its MODEL_DIR without TensorFlow.

T5X writes ``train/`` (loss, learning rate, speed), ``training_eval/TASK/`` (losses on evaluation splits) and
``inference_eval/TASK/`` (the task's own metrics); names here begin with these folders, as in
:attr:`t5x_harness.spec.RunResult.metrics`.

An event file is a sequence of records: the length of a serialized Event in eight bytes, its checksum in four, the
Event, and the Event's checksum in four. The file of a running job may end within a record.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from t5x_harness.buckets.folders import Folder

if TYPE_CHECKING:
    import pandas as pd

_HEADER = struct.Struct("<Q4x")
_FOOTER = 4


def scalars_of(content: bytes) -> Iterator[tuple[str, int, float]]:
    """Yields the tag, step and value of every scalar in an event file, in the order in which they were written.

    Args:
      content: the file, or as much of it as has been written.

    Raises:
      ImportError: the package tensorboard is not installed.
    """
    from tensorboard.compat.proto import event_pb2

    for record in _records(content):
        event = event_pb2.Event.FromString(record)
        for value in event.summary.value:
            number = _number(value)
            if number is not None:
                yield value.tag, event.step, number


def _records(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEADER.size <= len(content):
        (length,) = _HEADER.unpack_from(content, at)
        begin = at + _HEADER.size
        if begin + length + _FOOTER > len(content):
            return
        yield content[begin : begin + length]
        at = begin + length + _FOOTER


def _number(value: Any) -> float | None:
    """Returns a summary value as a number, or None if it is text, an image or a histogram."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if value.HasField("tensor"):
        from tensorboard.util import tensor_util

        array = tensor_util.make_ndarray(value.tensor)
        if array.ndim == 0 and array.dtype.kind in "fiub":
            return float(array)
    return None


EVALUATED = ("training_eval/", "inference_eval/")
_JUDGED = "inference_eval/"
_EVENTS = "events.out.tfevents"


class MetricsError(Exception):
    """Metrics cannot be read, or cannot be put into the requested form; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class RunMetrics:
    """The scalars of a run.

    Attributes:
      values: the values by name, such as ``train/loss`` or ``inference_eval/my_task/bleu``, and by step.
    """

    values: Mapping[str, Mapping[int, float]]

    def last(self, name: str) -> float:
        """Returns the value at the last step.

        Raises:
          KeyError: there is no such metric.
        """
        if name not in self.values:
            raise KeyError(f"no metric {name!r}; there are {', '.join(sorted(self.values)) or 'none'}")
        steps = self.values[name]
        return steps[max(steps)]

    def summary(self) -> dict[str, float]:
        """Returns the values that represent the run in a table of runs: the last value of each metric.

        A metric of a task, which may go up and down, also has its largest value (``…/max``) and the step of that value
        (``…/max_step``). If smaller values of a metric are better, read the curve.
        """
        found: dict[str, float] = {}
        for name in sorted(self.values):
            found[name] = self.last(name)
            if name.startswith(_JUDGED):
                step, value = max(self.values[name].items(), key=lambda item: (item[1], -item[0]))
                found |= {f"{name}/max": value, f"{name}/max_step": step}
        return found

    def frame(self, *prefixes: str) -> pd.DataFrame:
        """Returns a table with a row for each step and a column for each metric; missing values are NaN.

        Args:
          *prefixes: beginnings of the names of metrics, such as ``inference_eval/``; by default all metrics are chosen.

        Raises:
          MetricsError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MetricsError("a table of metrics needs pandas, not installed here: pip install pandas") from None
        chosen = {n: dict(v) for n, v in sorted(self.values.items()) if not prefixes or n.startswith(prefixes)}
        table = pd.DataFrame(chosen).sort_index()
        table.index.name = "step"
        return table


def number_for_json(value: float) -> float | str:
    """Returns a number as a value for JSON, which has no infinity or NaN."""
    return value if math.isfinite(value) else str(value)


def read_metrics(folder: Folder) -> RunMetrics:
    """Reads the event files below a run's MODEL_DIR, as far as they have been written.

    Args:
      folder: the MODEL_DIR.

    Raises:
      StorageError: the bucket does not exist, or access is refused.
      MetricsError: TensorBoard is not installed.
    """
    found: dict[str, dict[int, float]] = {}
    try:
        for name, _ in folder.names():
            where, _, base = name.rpartition("/")
            if base.startswith(_EVENTS):
                for tag, step, value in scalars_of(folder.read(name) or b""):
                    found.setdefault(f"{where}/{tag}" if where else tag, {})[step] = value
    except ImportError as error:
        raise MetricsError(f"event files need {error.name}, not installed here: pip install tensorboard") from None
    return RunMetrics(found)
