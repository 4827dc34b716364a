"""Stages whose process died, hung, or did not start: what is reported of them."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from pathlib import Path

from t5x_harness.google.server.settings import ServerError
from t5x_harness.runtime.choice import RuntimeChoiceError, runtime_of
from t5x_harness.spec import Finding, Location, Outcome, RunSpec, Severity, Stage, StageResult
from t5x_harness.system.diagnosis import read_tail
from t5x_harness.upstream.t5x import T5XLacks
from t5x_harness.workers.errors import RunCutOff, RunDied, RunRaised, RunTimedOut, WorkerError

_ROOM = 64 * 1024
"""Bytes below which a disk counts as full: what is left cannot hold a log."""


def broken_stage(
    stage: Stage, error: WorkerError | ServerError, spec: RunSpec, log: Path, timeout: float | None
) -> StageResult:
    """Makes the result of a stage that its process did not finish.

    Args:
      stage: the stage.
      error: what became of the process.
      spec: the run.
      log: of the process, in the run's folder.
      timeout: seconds that the stage was given.
    """
    finding = _finding(stage, error, timeout, see_log=f"see the end of its log, {log}")
    if not isinstance(error, WorkerError):
        return StageResult(stage, Outcome.FAILED, (finding,))
    if finding.fix is None:
        fix = error.fix or _fix_of_import(spec, error) or f"see the end of its log, {log}"
        finding = dataclasses.replace(finding, fix=fix)
    if full := next((each for each in (log.parent, Path(tempfile.gettempdir())) if _is_full(each)), None):
        finding = dataclasses.replace(
            finding,
            message=f"{finding.message}; no space is left on the disk of {full}",
            fix="make room there, or choose another disk: TMPDIR for the run's own files, --model_dir for checkpoints",
        )
    return StageResult(stage, Outcome.FAILED, (finding,), log_tail=error.log_tail or tail_of(log))


def tail_of(log: Path) -> str:
    """Returns the end of a log, which may not have been written."""
    return read_tail(log) if log.exists() else ""


def _finding(stage: Stage, error: WorkerError | ServerError, timeout: float | None, see_log: str) -> Finding:
    location, fix = None, None
    match error:
        case ServerError():
            code, message, fix = "RUN08", str(error), "or run without one: --gcs=off (pytest: --t5x-gcs=off)"
        case RunTimedOut():
            where = f"; it was at:\n{error.stack}" if error.stack else ""
            code, message = "RUN06", f"{stage} took longer than its limit of {timeout:g} s and was ended{where}"
            fix = "look where it hangs, or raise the limit"
        case RunCutOff():
            code, message = "RUN07", f"{stage} cannot go on: {error}"
            fix = "look for the out-of-memory killer in the kernel's log (dmesg); the next run does not depend on it"
        case RunDied():
            code, message, fix = "RUN07", f"the process of {stage} ended: {error}", see_log
        case RunRaised():
            how = "stopped" if error.method == stage.value else "could not be started"
            code, message = "RUN08", f"{stage} {how}: {error.message}"
            fix = T5XLacks.FIX if error.type_name.endswith(T5XLacks.__name__) else see_log
            if error.at is not None:
                location = Location(*error.at)
                fix = "a module that T5X imports must not end the program: take the line out, or put it into a function"
        case _:
            code, message = "RUN08", f"{stage} could not be started: {error}"
    return Finding(code, Severity.ERROR, stage, message, location=location, fix=fix)


def _fix_of_import(spec: RunSpec, error: WorkerError) -> str:
    """Returns what to do if an installed T5X cannot be imported, such as a checkout whose requirements are missing."""
    with contextlib.suppress(RuntimeChoiceError):
        runtime = runtime_of(spec)
        if runtime.kind == "installed" and runtime.location in error.log_tail:
            return f"install what {runtime.location} imports, or choose the embedded T5X: --t5x-runtime=embedded"
    return ""


def _is_full(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free < _ROOM
