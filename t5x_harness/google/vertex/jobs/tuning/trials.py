"""A trial as a custom job: its spec with the parameters in it, and what the tuning job tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t5x_harness.google.vertex.jobs.tuning.metrics import Metrics
from t5x_harness.google.vertex.jobs.tuning.space import Value

# Trial.State
ACTIVE, SUCCEEDED, INFEASIBLE = 2, 4, 5


def job_of_trial(tuning: Any, kind: type[Any], trial_id: str, parameters: Mapping[str, Value]) -> Any:
    """The ``CustomJob`` that runs a trial.

    Args:
      trial_id: from 1.
      parameters: its own; each is an argument ``--name=value`` behind those of the spec.
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
    """Adds a trial that runs to the message of a tuning job.

    Args:
      trial_id: from 1.
      custom_job: the name of the job that runs it.
      now: nanoseconds since 1970.
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
    """Writes a trial's end.

    Args:
      final: what it reached; None for nothing.
      now: nanoseconds since 1970.
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
    """A value as trials get it: numbers without a fraction have no point, those of DISCRETE parameters included."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
