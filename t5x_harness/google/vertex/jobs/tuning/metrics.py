"""The metrics that a trial reports: the lines of JSON that ``cloudml-hypertune`` writes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# StudySpec.MeasurementSelectionType and StudySpec.MetricSpec.GoalType
_BEST, _MINIMIZE = 2, 2


@dataclasses.dataclass(frozen=True)
class Metrics:
    """What a trial had reached.

    Attributes:
      step: of the program.
      seconds: since 1970, when it was reported last.
      values: by the ids of the study's metrics.
    """

    step: int
    seconds: float
    values: Mapping[str, float]

    def score(self, metric: Any) -> float:
        """How good it is by a ``MetricSpec``: larger for better."""
        value = self.values[metric.metric_id]
        return -value if metric.goal == _MINIMIZE else value


def read_metrics(file: Path, study_spec: Any) -> list[Metrics]:
    """What a file holds, by steps; a later line of a step counts for an earlier one.

    Lines that are not what the library writes, metrics that the study does not have, and values that are no numbers
    are passed over.

    Args:
      file: that the trial wrote; it need not be there.
    """
    names = [metric.metric_id for metric in study_spec.metrics]
    found: dict[int, Metrics] = {}
    for line in _lines(file):
        try:
            step = int(line.get("global_step", 0))
            values = {name: float(line[name]) for name in names if name in line}
            seconds = float(line.get("timestamp", 0.0))
        except (TypeError, ValueError):
            continue
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        if values:
            before = found[step].values if step in found else {}
            found[step] = Metrics(step, seconds, {**before, **values})
    return [found[step] for step in sorted(found)]


def select(found: Sequence[Metrics], study_spec: Any) -> Metrics | None:
    """The one that counts for a trial: the last that has the study's metrics, or the best if the study says so.

    Returns:
      None where a metric was never reported.
    """
    names = {metric.metric_id for metric in study_spec.metrics}
    whole = [each for each in found if names <= each.values.keys()]
    if not whole:
        return None
    if study_spec.measurement_selection_type == _BEST:
        return max(whole, key=lambda each: each.score(study_spec.metrics[0]))
    return whole[-1]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
