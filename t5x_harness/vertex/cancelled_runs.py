"""The experiments' runs of jobs that were cancelled, and that nobody follows to their ends any more."""

from __future__ import annotations

from collections.abc import Callable

from t5x_harness.buckets.bucket_folder import Folder, StorageError
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.metrics import MetricsError, RunMetrics, read_metrics
from t5x_harness.vertex.outcome import ENDED, JobOutcome
from t5x_harness.vertex.submitted import SubmittedJob
from t5x_harness.vertex.tracking import TrackedRun


def end_run_of(job: SubmittedJob, check: Callable[[], None]) -> str:
    """Completes the run of a job that was cancelled or has ended, with what the job has written until now.

    The service takes its time to end a job, which is not waited for: a run of one that is about to end is cancelled.
    A Ctrl-C leaves the run as it is.

    Args:
      job: the job.
      check: raises a Ctrl-C that came before.

    Returns:
      What was done, or why it was not; empty for a job without a run.
    """
    experiment = job.target.experiment
    if experiment is None:
        return ""
    where = f"of the experiment {experiment}"
    later = f"t5x-harness submit --attach={job.id} completes it"
    try:
        check()
        run = TrackedRun.resume(job, experiment)
        if run is None:
            return ""
        outcome = _outcome(job)
        metrics, problem = _metrics(job)
        run.end(outcome, metrics)
    except (StorageError, VertexError) as error:
        return f"the run {where} for {job.name} is not completed: {error}. {later}"
    except KeyboardInterrupt:
        return f"Ctrl-C left the run {where} for {job.name} as it was: {later}"
    return f"the run {run.name} {where} has ended as {JobOutcome(outcome.state)}{problem}"


def _outcome(job: SubmittedJob) -> JobOutcome:
    seen = job.look()
    return seen if seen.state in ENDED else JobOutcome("JOB_STATE_CANCELLED")


def _metrics(job: SubmittedJob) -> tuple[RunMetrics, str]:
    """Returns what the job wrote, and why that cannot be read."""
    try:
        return read_metrics(Folder(job.model_dir or job.output, job.target.project)), ""
    except (MetricsError, StorageError) as error:
        return RunMetrics({}), f", without metrics: {error}"
