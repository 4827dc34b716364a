"""The trials of a study: the parameters that it searches, and each trial as a custom job with metrics and an entry.

The service's default algorithm is Bayesian optimization. Here the values are random instead, and the job's log says so.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

Value = float | int | str

# StudySpec.ParameterSpec.ScaleType
_LOG, _REVERSE_LOG = 2, 3
# StudySpec.Algorithm
DEFAULT, _GRID = 0, 2
# The epsilon of the API for values that a condition names.
_EPSILON = 1e-10


@dataclasses.dataclass(frozen=True)
class TunedParameter:
    """A parameter of a study.

    Attributes:
      choices: its values; empty for a range.
      low: the smallest value of a range.
      high: the largest value of a range.
      whole: whether the values of a range are integers.
      scale: the number of the API's scale type.
      conditional: parameters that are active only if this one has certain values, each with those values.
    """

    name: str
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    scale: int = 0
    conditional: tuple[tuple[tuple[Value, ...], TunedParameter], ...] = ()

    @classmethod
    def of(cls, spec: Any) -> Self:
        kind = spec.WhichOneof("parameter_value_spec")
        values = getattr(spec, kind)
        below: list[tuple[tuple[Value, ...], TunedParameter]] = []
        for each in spec.conditional_parameter_specs:
            parent = each.WhichOneof("parent_value_condition")
            below.append((tuple(getattr(each, parent).values) if parent else (), cls.of(each.parameter_spec)))
        if kind in ("categorical_value_spec", "discrete_value_spec"):
            return cls(spec.parameter_id, tuple(values.values), scale=spec.scale_type, conditional=tuple(below))
        whole = kind == "integer_value_spec"
        return cls(
            spec.parameter_id, (), values.min_value, values.max_value, whole, spec.scale_type, conditional=tuple(below)
        )

    def at(self, place: float) -> Value:
        """Returns the value at a position on the parameter's scale.

        Args:
          place: the position, at least 0 and less than 1. Uniform positions yield values that are uniform on the scale.
        """
        if self.choices:
            return self.choices[int(place * len(self.choices))]
        if not self.whole:
            return min(max(self._scaled(place, self.low, self.high), self.low), self.high)
        # Each integer stands for the numbers that round to it.
        low, high = (self.low, self.high) if self.scale in (_LOG, _REVERSE_LOG) else (self.low - 0.5, self.high + 0.5)
        return int(min(max(math.floor(self._scaled(place, low, high) + 0.5), self.low), self.high))

    def values(self) -> tuple[Value, ...]:
        """Returns all values. The API accepts no grid over a range of doubles."""
        return self.choices or tuple(range(int(self.low), int(self.high) + 1))

    def active_with(self, value: Value) -> Iterator[TunedParameter]:
        """Yields the parameters that are active if this one has a value."""
        for values, parameter in self.conditional:
            if any(_same(value, each) for each in values):
                yield parameter

    def _scaled(self, place: float, low: float, high: float) -> float:
        if self.scale == _LOG:
            return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
        if self.scale == _REVERSE_LOG:
            return high + low - math.exp(math.log(high) - place * (math.log(high) - math.log(low)))
        return low + place * (high - low)


def assign(parameters: Sequence[TunedParameter], choose: Callable[[TunedParameter], Value]) -> dict[str, Value]:
    """Returns a value for each active parameter, by name."""
    found: dict[str, Value] = {}
    for parameter in parameters:
        value = found[parameter.name] = choose(parameter)
        found |= assign(tuple(parameter.active_with(value)), choose)
    return found


def grid(parameters: Sequence[TunedParameter]) -> Iterator[Mapping[str, Value]]:
    """Yields all assignments; the last parameter's values change fastest."""
    if not parameters:
        yield {}
        return
    first, *rest = parameters
    for value in first.values():
        for below in grid((*first.active_with(value), *rest)):
            yield {first.name: value, **below}


def suggest(study_spec: Any, seed: str, number: int) -> Mapping[str, Value] | None:
    """Returns the parameters of a trial, which are the same each time for the same study.

    Args:
      study_spec: a ``StudySpec``, in which conditional parameters are part of those that they depend on.
      seed: the seed of the random values.
      number: the number of earlier trials.

    Returns:
      The parameters by name, or None if the grid has no more.
    """
    parameters = tuple(TunedParameter.of(each) for each in study_spec.parameters)
    if study_spec.algorithm == _GRID:
        return next(itertools.islice(grid(parameters), number, None), None)
    source = random.Random(f"{seed}/{number}")
    return assign(parameters, lambda parameter: parameter.at(source.random()))


def _same(value: Value, other: Value) -> bool:
    if isinstance(value, str) or isinstance(other, str):
        return value == other
    return abs(value - other) <= _EPSILON


# StudySpec.MeasurementSelectionType and StudySpec.MetricSpec.GoalType
_BEST, _MINIMIZE = 2, 2
# The end of the year 9999, where google.protobuf.Timestamp ends.
_LAST_SECOND = 253_402_300_799


@dataclasses.dataclass(frozen=True)
class Metrics:
    """The metrics of a trial at one step.

    Attributes:
      step: the program's step.
      seconds: when they were last reported, in seconds since 1970.
      values: the values by the ids of the study's metrics.
    """

    step: int
    seconds: float
    values: Mapping[str, float]


def read_metrics(file: Path, study_spec: Any) -> list[Metrics]:
    """Returns the metrics in a file in the order of their steps; a later line of a step replaces an earlier one.

    Lines that the library does not write, metrics that the study does not have, and values that are not numbers are
    ignored.

    Args:
      file: the trial's file, which need not exist.
    """
    names = [metric.metric_id for metric in study_spec.metrics]
    found: dict[int, Metrics] = {}
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return []
    for written in text.splitlines():
        try:
            line = json.loads(written)
            step = int(line.get("global_step", 0))
            values = {name: float(line[name]) for name in names if name in line}
            seconds = float(line.get("timestamp", 0.0))
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
            continue
        if not (abs(step) < 1 << 63 and 0 <= seconds <= _LAST_SECOND):  # messages of the API hold no others
            continue
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        if values:
            before = found[step].values if step in found else {}
            found[step] = Metrics(step, seconds, {**before, **values})
    return [found[step] for step in sorted(found)]


def select(found: Sequence[Metrics], study_spec: Any) -> Metrics | None:
    """Returns the metrics that count for a trial: the last complete ones, or the best if the study asks for those.

    Returns:
      None if no step has all metrics of the study.
    """
    names = {metric.metric_id for metric in study_spec.metrics}
    whole = [each for each in found if names <= each.values.keys()]
    if not whole:
        return None
    if study_spec.measurement_selection_type == _BEST:
        first = study_spec.metrics[0]
        sign = -1 if first.goal == _MINIMIZE else 1
        return max(whole, key=lambda each: sign * each.values[first.metric_id])
    return whole[-1]


# Trial.State
ACTIVE, SUCCEEDED, INFEASIBLE = 2, 4, 5


def job_of_trial(tuning: Any, kind: type[Any], trial_id: str, parameters: Mapping[str, Value]) -> Any:
    """Returns the ``CustomJob`` that runs a trial.

    Args:
      trial_id: the trial's number, from 1.
      parameters: the trial's parameters, each of which becomes an argument ``--name=value`` after those of the spec.
    """
    job = kind(display_name=f"{tuning.display_name}-trial-{trial_id}"[-128:], state=1)
    job.job_spec.CopyFrom(tuning.trial_job_spec)
    words = [f"--{name}={_text(value)}" for name, value in parameters.items()]
    for pool in job.job_spec.worker_pool_specs:
        if task := pool.WhichOneof("task"):
            getattr(pool, task).args.extend(words)
    output = job.job_spec.base_output_directory
    if output.output_uri_prefix:
        output.output_uri_prefix = f"{output.output_uri_prefix.rstrip('/')}/{trial_id}"
    return job


def add_trial(tuning: Any, trial_id: str, parameters: Mapping[str, Value], custom_job: str, now: int) -> None:
    """Adds a running trial to the message of a tuning job.

    Args:
      trial_id: the trial's number, from 1.
      custom_job: the name of the job that runs it.
      now: the time in nanoseconds since 1970.
    """
    trial = tuning.trials.add(id=trial_id, state=ACTIVE, custom_job=custom_job)
    trial.start_time.FromNanoseconds(now)
    for name, value in parameters.items():
        parameter = trial.parameters.add(parameter_id=name)
        if isinstance(value, str):
            parameter.value.string_value = value
        else:
            parameter.value.number_value = value


def end_trial(trial: Any, final: Metrics | None, reason: str, now: int) -> None:
    """Records the end of a trial.

    Args:
      final: its final metrics, if it has any.
      reason: the reason why it has none.
      now: the time in nanoseconds since 1970.
    """
    trial.end_time.FromNanoseconds(now)
    trial.state = INFEASIBLE if final is None else SUCCEEDED
    if final is None:
        trial.infeasible_reason = reason
        return
    measurement = trial.final_measurement
    measurement.step_count = final.step
    started = trial.start_time.ToNanoseconds()
    measurement.elapsed_duration.FromNanoseconds(max(0, int(final.seconds * 1e9) - started))
    for name, value in final.values.items():
        measurement.metrics.add(metric_id=name, value=value)


def _text(value: Value) -> str:
    """Returns a value as an argument; whole numbers have no decimal point, not even for DISCRETE parameters."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
