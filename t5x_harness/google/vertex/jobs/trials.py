"""The trials of a study: the parameters that it searches, and each trial as a custom job with metrics and an entry.

The service's default algorithm is Bayesian optimization. Here the values are random instead, and the job's log says so.
"""

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

Value = float | int | str

_CHOICES = ("categorical_value_spec", "discrete_value_spec")
# StudySpec.ParameterSpec.ScaleType
_LOG, _REVERSE_LOG = 2, 3
# StudySpec.Algorithm
DEFAULT, _GRID = 0, 2
# The epsilon of the API for values that a condition names.
_EPSILON = 1e-10


def value_at(parameter: Any, place: float) -> Value:
    """Returns the value at a position on a parameter's scale.

    Args:
      parameter: a ``ParameterSpec`` of the study.
      place: the position, at least 0 and less than 1. Uniform positions yield values that are uniform on the scale.
    """
    kind, scale = parameter.WhichOneof("parameter_value_spec"), parameter.scale_type
    spec = getattr(parameter, kind)
    if kind in _CHOICES:
        return cast(Value, spec.values[int(place * len(spec.values))])
    smallest, largest = spec.min_value, spec.max_value
    if kind == "double_value_spec":
        return float(min(max(_scaled(scale, place, smallest, largest), smallest), largest))
    # Each integer stands for the numbers that round to it.
    half = 0 if scale in (_LOG, _REVERSE_LOG) else 0.5
    return int(min(max(math.floor(_scaled(scale, place, smallest - half, largest + half) + 0.5), smallest), largest))


def _scaled(scale: int, place: float, low: float, high: float) -> float:
    if scale == _LOG:
        return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
    if scale == _REVERSE_LOG:
        return high + low - math.exp(math.log(high) - place * (math.log(high) - math.log(low)))
    return low + place * (high - low)


def values_of(parameter: Any) -> Sequence[Value]:
    """Returns all values of a parameter. The API accepts no grid over a range of doubles."""
    kind = parameter.WhichOneof("parameter_value_spec")
    spec = getattr(parameter, kind)
    return spec.values if kind in _CHOICES else range(spec.min_value, spec.max_value + 1)


def _active_with(parameter: Any, value: Value) -> Iterator[Any]:
    """Yields the parameters that are active if this one has a value."""
    for each in parameter.conditional_parameter_specs:
        condition = each.WhichOneof("parent_value_condition")
        if condition and any(_same(value, other) for other in getattr(each, condition).values):
            yield each.parameter_spec


def assign(parameters: Iterable[Any], choose: Callable[[Any], Value]) -> dict[str, Value]:
    """Returns a value for each active parameter, by name."""
    found: dict[str, Value] = {}
    for parameter in parameters:
        value = found[parameter.parameter_id] = choose(parameter)
        found |= assign(_active_with(parameter, value), choose)
    return found


def grid(parameters: Sequence[Any]) -> Iterator[Mapping[str, Value]]:
    """Yields all assignments; the last parameter's values change fastest."""
    if not parameters:
        yield {}
        return
    first, *rest = parameters
    for value in values_of(first):
        for below in grid((*_active_with(first, value), *rest)):
            yield {first.parameter_id: value, **below}


def suggest(study_spec: Any, seed: str, number: int) -> Mapping[str, Value] | None:
    """Returns the parameters, by name, of the trial after a number of others, or None if the grid has no more.

    They are the same each time for one seed.
    """
    if study_spec.algorithm == _GRID:
        return next(itertools.islice(grid(study_spec.parameters), number, None), None)
    source = random.Random(f"{seed}/{number}")
    return assign(study_spec.parameters, lambda parameter: value_at(parameter, source.random()))


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
    """The metrics of a trial at one step of its program, by their ids, last reported so many seconds after 1970."""

    step: int
    seconds: float
    values: Mapping[str, float]


def read_metrics(file: Path, study_spec: Any) -> list[Metrics]:
    """Returns the metrics in a file in the order of their steps; a later line of a step replaces an earlier one.

    Lines that the library does not write, metrics that the study does not have, and values that are not numbers are
    ignored. The file need not exist.
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

    It returns None if no step has all metrics of the study.
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

    Each of the trial's parameters becomes an argument ``--name=value`` after those of the spec.
    """
    job = kind(display_name=f"{tuning.display_name}-trial-{trial_id}"[-128:], state=1)
    job.job_spec.CopyFrom(tuning.trial_job_spec)
    words = []
    for name, value in parameters.items():  # whole numbers have no decimal point, not even for DISCRETE parameters
        words.append(f"--{name}={int(value) if isinstance(value, float) and value.is_integer() else value}")
    for pool in job.job_spec.worker_pool_specs:
        if task := pool.WhichOneof("task"):
            getattr(pool, task).args.extend(words)
    output = job.job_spec.base_output_directory
    if output.output_uri_prefix:
        output.output_uri_prefix = f"{output.output_uri_prefix.rstrip('/')}/{trial_id}"
    return job


def add_trial(tuning: Any, trial_id: str, parameters: Mapping[str, Value], custom_job: str, now: int) -> None:
    """Adds a trial that began ``now``, in nanoseconds since 1970, and its custom job to a tuning job's message."""
    trial = tuning.trials.add(id=trial_id, state=ACTIVE, custom_job=custom_job)
    trial.start_time.FromNanoseconds(now)
    for name, value in parameters.items():
        parameter = trial.parameters.add(parameter_id=name)
        if isinstance(value, str):
            parameter.value.string_value = value
        else:
            parameter.value.number_value = value


def end_trial(trial: Any, final: Metrics | None, reason: str, now: int) -> None:
    """Records the end of a trial ``now``, in nanoseconds since 1970, with its final metrics, or why it has none."""
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
