"""The calls that the processes of a run answer: its own, and those that compile one of its programs each."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
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


def open_compiling(argument: Mapping[str, Any], progress: Progress) -> ProgramProcess:
    """Sets up this process; see :func:`~t5x_harness.execute.execution.open_execution`."""
    return ProgramProcess(open_execution(argument, progress))


class ProgramProcess:
    """One program: lowered, and then compiled when no other process of this machine compiles.

    Args:
      run: the run that the program is one of.
    """

    def __init__(self, run: Execution) -> None:
        self._run = run
        self._lowered: Any = None
        self._turn = contextlib.ExitStack()  # to compile: the end of the process gives it back, however it comes

    def lower(self, program: dict[str, Any]) -> dict[str, Any]:
        """Lowers the program for the slice.

        Args:
          program: an :class:`~t5x_harness.aot.request.ProgramSpec` as JSON.

        Returns:
          A :class:`~t5x_harness.aot.request.LoweredProgram` as JSON, or ``finding``: what is wrong, as JSON.
        """
        from t5x_harness.aot.programs import lower
        from t5x_harness.aot.refusals import NotCompiled
        from t5x_harness.aot.request import ProgramSpec
        from t5x_harness.resolve.explanation import explain, log_traceback

        try:
            self._run.open_config()
            assert self._run.config is not None
            spec = ProgramSpec.from_json(program)
            self._lowered, described = lower(spec, self._run.config, self._run.slice)
        except Exception as error:  # whatever the user's model, T5X or JAX raises
            log_traceback(error)
            if isinstance(error, NotCompiled):
                return {"finding": error.finding.to_json()}
            return {"finding": explain(error, Stage.AOT, self._run.config, None).to_json()}
        return described.to_json()

    def await_turn(self, lock: str) -> None:
        """Waits until no other process compiles for a TPU; from then until its end, this one does.

        Args:
          lock: the file that is locked.
        """
        from t5x_harness.aot.compiler import one_at_a_time

        waiting = {"stage": Stage.AOT.value, "waiting": True}
        self._turn.enter_context(one_at_a_time(Path(lock), lambda: self._run.progress(waiting)))

    def compile(self, folder: str, until: str) -> dict[str, Any]:
        """Compiles the program that was lowered; see :func:`t5x_harness.aot.compiler.compile_program`.

        Args:
          folder: a new folder, for what the compiler says of it.
          until: an :class:`~t5x_harness.aot.compiler.Until`.

        Returns:
          A :class:`~t5x_harness.aot.compiler.CompilerResult` as JSON.
        """
        from t5x_harness.aot.compiler import Until, compile_program

        return compile_program(self._lowered, Path(folder), Until(until)).to_json()
