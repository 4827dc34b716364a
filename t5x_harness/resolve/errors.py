"""Turns what a run raises into a :class:`~t5x_harness.spec.Finding`: what failed, where, the values, the fix.

A run stops with an exception of gin, SeqIO, T5X, JAX or the user's own module.  Its text often names no file, and its
traceback leads through a library that the user does not own.  :func:`explain` finds the line that is the user's (gin's
account of the binding, or the innermost frame in their own code) and rewords the texts that the failure catalogue
knows.  The traceback itself belongs into the run's log.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import traceback
from pathlib import Path

from t5x_harness.lint.program import GinProgram
from t5x_harness.resolve.frames import (
    UserFrame,
    causes,
    error_text,
    functions,
    passed_through_t5x,
    raised_by_harness,
    raised_by_user_code,
    root_cause,
    shown_path,
    user_frame,
)
from t5x_harness.resolve.gin_config import GinConfig
from t5x_harness.resolve.imports import missing_module
from t5x_harness.resolve.known_errors import reword
from t5x_harness.resolve.metric_errors import LATE, POSTPROCESS, kind_of
from t5x_harness.resolve.registrations import RegisteredTwice
from t5x_harness.resolve.tfds_state import versions_asked
from t5x_harness.spec import Finding, Location, Severity, Stage
from t5x_harness.standins.hugging_face import request_in
from t5x_harness.system.addresses import HOW_TO_ALLOW


def log_traceback(error: BaseException) -> None:
    """Writes the whole traceback into the run's log, which is this process' standard error."""
    traceback.print_exception(error, file=sys.stderr)
    sys.stderr.flush()


def explain(error: BaseException, stage: Stage, config: GinConfig | None, program: GinProgram | None = None) -> Finding:
    """Returns the finding for an exception that ended a stage.

    Args:
      error: what was raised.
      stage: the stage that it ended.
      config: the parsed config; None where parsing itself failed.
      program: the statements, to give gin's ``In file`` an include chain; taken from ``config`` if not given.
    """
    texts = [str(link) for link in causes(error)]
    if twice := next((link for link in causes(error) if isinstance(link, RegisteredTwice)), None):
        at = _gin_location(texts, program or (config.program if config else None)) if twice.has_two_names else None
        return Finding("SEQ05", Severity.ERROR, stage, twice.message, at or twice.location, twice.fix)
    if task := _evaluated_task(texts):
        return _metric_failure(task, error, stage)
    where = _gin_location(texts, program or (config.program if config else None))
    frame = user_frame(error)
    location = where or (frame.location if frame else None)
    if asked := next(filter(None, map(request_in, texts)), None):
        return Finding("RUN09", Severity.ERROR, stage, asked.message, location, asked.fix)
    if known := reword(texts):
        if known.code == "GIN15":
            return missing_module(error, stage, frame, where)
        if versions := next(filter(None, map(versions_asked, texts)), None):
            known = dataclasses.replace(known, fix=versions)
        if frame is not None and known.code.startswith("SEQ"):  # SeqIO's, of what the user's module says
            location = frame.location
        return Finding(known.code, Severity.ERROR, stage, known.message, location, known.fix)
    # The emulated Google Cloud's proxy does not know for whom it refuses a host.
    advice = f"; {HOW_TO_ALLOW}" if any("t5x-harness refuses " in text for text in texts) else ""
    if frame and raised_by_user_code(error):
        message = f"{_raised(error, frame)}{advice}"
        fix = f"correct {frame.function if frame.is_named else 'that line'}"
        return Finding("USR01", Severity.ERROR, stage, message, frame.location, fix=fix)
    cause = root_cause(error)
    if raised_by_harness(error):
        message = f"t5x-harness itself stopped with {error_text(cause)}: T5X was not at work, nor was your code"
        fix = "report it with the traceback in the run's log"
        return Finding("RUN12", Severity.ERROR, stage, message, None, fix)
    who = "T5X" if passed_through_t5x(error) else stage.value
    message = f"{who} stopped with {error_text(cause)}{advice}"
    return Finding("RUN01", Severity.ERROR, stage, message, location, fix="see the traceback in the run's log")


def _evaluated_task(texts: list[str]) -> str | None:
    """Returns the task of which SeqIO says that it could not compute its metrics."""
    match = next(filter(None, (re.match(r"Failed to evaluate task ([\w.:-]+): ", text) for text in texts)), None)
    return match.group(1) if match else None


def _raised(error: BaseException, frame: UserFrame | None, other: str = "") -> str:
    cause = root_cause(error)
    function = f"{frame.function} in " if frame and frame.is_named else ""
    who = f"{function}{frame.file}:{frame.line}" if frame else other
    return f"{who} raised {error_text(cause)}"


def _metric_failure(task: str, error: BaseException, stage: Stage) -> Finding:
    """Returns a metric or postprocess function that raised, also where a background thread's error surfaced later."""
    kind = kind_of(error)
    beside = stage is Stage.TRAIN and any(f in functions(error) for f in ("result", "_async_compute_metrics"))
    code = "SEQ21" if kind.code == "SEQ20" and beside else kind.code
    frame = user_frame(error)
    own = "its postprocess_fn" if code == POSTPROCESS else "a metric function"
    return Finding(
        code,
        Severity.ERROR,
        stage,
        f"the metrics of task {task} cannot be computed: {_raised(error, frame, own)}{LATE if code == 'SEQ21' else ''}",
        frame.location if frame else None,
        kind.fix,
    )


def _gin_location(texts: list[str], program: GinProgram | None) -> Location | None:
    """Returns the innermost file and line that gin names, with the includes that led there."""
    for text in texts:
        if match := re.search(r"In file \"([^\"]+)\", line (\d+)", text):
            file, line = match.group(1), int(match.group(2))
            for statement in program.statements if program else ():
                where = statement.location
                if where.line == line and Path(where.file).name == Path(file).name:
                    return where
            return Location(shown_path(file), line)
    return None
