"""The calls that a run's process answers; :func:`open_run` is what a worker calls."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from t5x_harness.execute.execution import Execution, open_execution
from t5x_harness.spec import Stage

if TYPE_CHECKING:
    from t5x_harness.execute.execution import Progress


def open_run(argument: Mapping[str, Any], progress: Progress) -> SimpleNamespace:
    """Sets up this process for a run; see :func:`~t5x_harness.execute.execution.open_execution`.

    Returns:
      The functions that can be called, by name: each stage, and what there is to know of a run between or after them.
    """
    run = open_execution(argument, progress)
    stages = {stage.value: functools.partial(run_stage, run, stage) for stage in Stage}
    others = {each.__name__: functools.partial(each, run) for each in (job, programs, artifacts)}
    return SimpleNamespace(**stages, **others)


def run_stage(run: Execution, stage: Stage) -> dict[str, Any]:
    """Runs a stage; see :meth:`~t5x_harness.execute.execution.Execution.run`."""

    def work(run: Execution, report: Any) -> None:
        from t5x_harness.execute.stages import STAGES  # imports T5X

        STAGES[stage](run, report)

    return run.run(stage, work)


def job(run: Execution, shrink: bool, steps: int | None = None, standins: bool = False) -> dict[str, Any]:
    """Returns what a job that makes this run binds; see :func:`t5x_harness.execute.for_job.prepare_job`."""
    from t5x_harness.execute.for_job import prepare_job

    return prepare_job(run, shrink, steps, standins)


def programs(run: Execution) -> dict[str, Any]:
    """Returns what the aot stage has to know of a planned run; see :class:`t5x_harness.aot.request.AotRun`."""
    from t5x_harness.aot.run_programs import aot_run

    return aot_run(run.plan_or_stop()).to_json()


def artifacts(run: Execution) -> dict[str, Any]:
    """Returns what the run wrote; see :func:`t5x_harness.execute.artifacts.read_artifacts`."""
    from t5x_harness.execute.artifacts import read_artifacts

    return read_artifacts(run)
