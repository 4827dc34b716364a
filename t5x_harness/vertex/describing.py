"""A job in words and as plain values, before it is sent and after it ended."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_harness.google.vertex.validation import SpecVerdict, judge
from t5x_harness.system.secrets import masked
from t5x_harness.vertex.emulated import uses_emulated_google
from t5x_harness.vertex.job import T5XJob
from t5x_harness.vertex.job_rules import job_rules
from t5x_harness.vertex.launching import LaunchedJob, RunEnd
from t5x_harness.vertex.metrics import EVALUATED
from t5x_harness.vertex.target import placeholders_in


def verdict_of(job: T5XJob) -> SpecVerdict:
    """Judges a job's spec as Vertex AI will."""
    return judge(job.to_pb(), job.target.location, job_rules())


def refusals(job: T5XJob, verdict: SpecVerdict) -> str:
    """Returns every reason why Vertex AI refuses a job, one per line; empty if it does not."""
    if not verdict.violations:
        return ""
    found = "\n".join(f"  {violation}" for violation in verdict.violations)
    return f"{job.name}: Vertex AI refuses this job:\n{found}"


def as_values(job: T5XJob, verdict: SpecVerdict) -> dict[str, Any]:
    """Returns what will be sent, for other programs."""
    message = job.to_pb()
    return {
        "name": job.name,
        "project": job.target.project,
        "location": job.target.location,
        "machine": str(job.machine),
        "slice": job.machine.slice.name if job.machine.slice else None,
        "chip_hours": job.chip_hours.total,
        "model_dir": job.model_dir,
        "args": list(job.args),
        "stage": job.stage,
        "staged": [{"name": file.name, "bytes": len(file.content)} for file in job.staged_files],
        "of_image": list(job.closure.of_image),
        "of_buckets": list(job.closure.of_buckets),
        "passed_over": list(job.closure.passed_over),
        "warnings": [str(warning) for warning in verdict.warnings],
        "spec": _plain(message),
    }


def as_text(job: T5XJob, verdict: SpecVerdict, *, spec: bool) -> Iterator[str]:
    """Yields the same for people, line by line.

    Args:
      job: the job.
      verdict: the result of :func:`verdict_of`.
      spec: whether to show the whole spec as well.
    """
    yield f"{job.name}: {job.run_mode} on {job.machine} in {job.target.location} of {job.target.project}"
    yield f"  chip-hours: {job.chip_hours}"
    yield f"  image: {job.target.image}"
    if missing := placeholders_in(job.target, lambda name: f"--{name}"):
        yield f"  {missing}"
    yield f"  writes to: {job.model_dir}"
    yield "  args:"
    yield from (f"    {argument}" for argument in job.args)
    yield f"  staged in {job.stage}:"
    yield from (f"    {file.name} ({len(file.content)} bytes)" for file in job.staged_files)
    for title, names in (
        ("the image has to have", job.closure.of_image),
        ("read where they are", job.closure.of_buckets),
        ("not staged", job.closure.passed_over),
        ("warnings", [str(warning) for warning in verdict.warnings]),
    ):
        if names:
            yield f"  {title}:"
            yield from (f"    {name}" for name in names)
    if spec:
        import json

        yield "  spec:"
        yield from (f"    {line}" for line in json.dumps(_plain(job.to_pb()), indent=2).splitlines())


def end_as_values(launched: LaunchedJob, end: RunEnd | None) -> dict[str, Any]:
    """Returns the outcome of a job that was sent, for other programs; ``end`` is None if it was not waited for."""
    job = launched.submitted
    values: dict[str, Any] = {
        "job": job.name,
        "display_name": job.display_name,
        "url": job.url or None,
        "model_dir": launched.model_dir,
        "experiment_run": launched.tracked.name if launched.tracked else None,
        "notes": list(launched.notes),
    }
    if end is not None:
        values |= {
            "state": end.outcome.state,
            "error": end.outcome.error,
            "devices": _devices(launched, end),
            "metrics": {name: _finite(steps) for name, steps in end.metrics.values.items()},
            "notes": list(end.notes),
        }
    return values


def end_as_text(launched: LaunchedJob, end: RunEnd) -> Iterator[str]:
    """Yields the same for people, line by line, with the last metrics of evaluation and the last loss."""
    yield f"{launched.submitted.display_name}: {end.outcome}"
    yield f"  {launched.submitted.name}"
    yield f"  wrote to: {launched.model_dir}"
    yield f"  devices: {_devices(launched, end)}"
    if end.ran_on.fell_back and launched.submitted.machine.is_tpu and not _is_emulated():
        message, fix = end.ran_on.no_tpu(launched.submitted.display_name, str(launched.submitted.machine))
        yield f"  warning: {message}"
        yield f"    fix: {fix}"
    shown = [n for n in sorted(end.metrics.values) if n.startswith(EVALUATED) or n == "train/loss"]
    for name in shown:
        yield f"  {name}: {end.metrics.last(name):g} at step {max(end.metrics.values[name])}"
    yield from (f"  not done: {note}" for note in end.notes)


def _devices(launched: LaunchedJob, end: RunEnd) -> str:
    return end.ran_on.about(tpu=launched.submitted.machine.is_tpu, emulated=_is_emulated())


def _is_emulated() -> bool:
    return uses_emulated_google(os.environ)


def _finite(steps: Mapping[int, float]) -> dict[str, float | str]:
    """Returns values by step for JSON, which has no infinity and no NaN."""
    return {str(step): value if math.isfinite(value) else str(value) for step, value in steps.items()}


def _plain(message: Any) -> dict[str, Any]:
    """Returns a message in the form of the REST API, with masked secrets in variables of containers."""
    from google.protobuf.json_format import MessageToDict

    values: dict[str, Any] = MessageToDict(type(message).pb(message))
    _mask(values)
    return values


def _mask(value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _mask(each)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name == "env":
                for variable in part:
                    variable["value"] = masked(variable.get("name", ""), variable.get("value", ""))
            else:
                _mask(part)
