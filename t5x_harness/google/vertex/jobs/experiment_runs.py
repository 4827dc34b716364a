"""The run of an experiment that the service makes for a job that names the experiment, and no run of it."""

from __future__ import annotations

from typing import Any

from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import CONTEXT
from t5x_harness.google.vertex.services import Services

__all__ = ["with_run"]

# What the SDK writes into a run that it begins, and looks for in one that it takes up.
_BEGUN: dict[str, Any] = {"_params": {}, "_metrics": {}, "_state": "RUNNING"}


def with_run(services: Services, job: Any) -> Any:
    """A custom job with the run that its experiment has for it.

    How the service calls such a run is documented nowhere; here its name is the job's number. No run is made in an
    experiment that is not there.

    Args:
      services: that keeps both.
      job: as it is kept.
    """
    experiment = services.resources.find(job.job_spec.experiment, CONTEXT.message) if job.job_spec.experiment else None
    if experiment is None or job.job_spec.experiment_run:
        return job
    name = job.name.rpartition("/")[2]
    context: Any = CONTEXT.message(
        display_name=name, schema_title="system.ExperimentRun", schema_version="0.0.1", metadata=_BEGUN
    )
    run = services.resources.create(f"{job.job_spec.experiment}-{name}", context)
    links.add_child(services, job.job_spec.experiment, run.name)

    def name_run(kept: Any) -> None:
        kept.job_spec.experiment_run = run.name

    return services.resources.update(job.name, type(job), name_run)
