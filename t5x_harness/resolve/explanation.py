"""Turns what a run raises into a :class:`~t5x_harness.spec.Finding`: what failed, where, the values, the fix.

A run stops with an exception of gin, SeqIO, T5X, JAX or the user's own module.  Its text often names no file, and its
traceback leads through a library that the user does not own.  :func:`explain` rewords the texts that the failure
catalogue knows.  Of any other it names the line that raised it (the user's own, or the library's), the configurable
that Gin was calling, and the bindings that it is about.  The traceback itself belongs into the run's log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.values import format_value
from t5x_harness.resolve.callees import users_callee
from t5x_harness.resolve.error_texts import error_text, full_text
from t5x_harness.resolve.frames import (
    CodePlace,
    causes,
    functions,
    library_frame,
    passed_through_t5x,
    raised_by_harness,
    raised_by_user_code,
    root_cause,
    user_frame,
)
from t5x_harness.resolve.imports import missing_module
from t5x_harness.resolve.known_errors import reword
from t5x_harness.resolve.metric_errors import LATE, POSTPROCESS, kind_of
from t5x_harness.resolve.parties import shown_path
from t5x_harness.resolve.registrations import DuplicateRegistration
from t5x_harness.resolve.suspects import Suspect, calls, misfits, refused_value, suspects
from t5x_harness.resolve.tfds_state import versions_asked
from t5x_harness.spec import Finding, Location, Severity, Stage
from t5x_harness.standins.hugging_face import request_in
from t5x_harness.system.addresses import HOW_TO_ALLOW

REPORT_IT = "report it, with the traceback in the run's log, the Gin files and what `t5x-harness doctor` prints"
"""What to do about a defect of the harness."""

_LENGTHS = "SEQ15"
"""The mistake that SeqIO finds in what the config says."""


def log_traceback(error: BaseException) -> None:
    """Writes the whole traceback into the run's log, which is this process' standard error."""
    with contextlib.suppress(OSError):  # on a full disk the finding still counts
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
    texts = [full_text(link) for link in causes(error)]
    where = _gin_location(texts, program or (config.program if config else None))
    if twice := next((link for link in causes(error) if isinstance(link, DuplicateRegistration)), None):
        at = where if twice.has_two_names else None
        return Finding("SEQ05", Severity.ERROR, stage, twice.message, at or twice.location, twice.fix)
    if task := _evaluated_task(texts):
        return _metric_failure(task, error, stage)
    found = _Found(suspects(error, config) if config else [], where, user_frame(error))
    if asked := next(filter(None, map(request_in, texts)), None):
        return Finding("RUN09", Severity.ERROR, stage, asked.message, found.location, asked.fix)
    if known := reword(texts):
        if known.code == "GIN15":
            return missing_module(error, stage, found.frame, where)
        if versions := next(filter(None, map(versions_asked, texts)), None):
            known = dataclasses.replace(known, fix=versions)
        location = found.location
        if known.code.startswith("SEQ") and known.code != _LENGTHS:  # SeqIO's, of what the user's module says
            location = found.frame.location if found.frame else where
        elif found.culprit is None and config is not None:
            location = where or _line_of_macro(known.message, config) or location
        return Finding(known.code, Severity.ERROR, stage, known.message, location, known.fix)
    # The emulated Google Cloud's proxy does not know for whom it refuses a host.
    refused = any("t5x-harness refuses " in text for text in texts)
    advice = f"; {HOW_TO_ALLOW}" if refused else ""
    if not raised_by_user_code(error) and (callee := users_callee(error)):
        message = f"{callee} is not as its caller needs it: {error_text(root_cause(error))}{found.in_words}"
        return Finding("USR01", Severity.ERROR, stage, message, callee.location, f"correct {callee.function}")
    if found.frame and raised_by_user_code(error):
        message = f"{_raised(error, found.frame)}{found.in_words}{advice}"
        what = found.frame.function if found.frame.is_named else "that line"
        fix = "allow the host, or keep the file here" if refused else f"correct {what}"
        return Finding("USR01", Severity.ERROR, stage, message, found.frame.location, fix=fix)
    cause = root_cause(error)
    if raised_by_harness(error):
        message = f"t5x-harness itself stopped with {error_text(cause)}: T5X was not at work, nor was your code"
        return Finding("RUN12", Severity.ERROR, stage, message, None, REPORT_IT)
    return _unknown(error, stage, config, found, advice)


@dataclasses.dataclass(frozen=True)
class _Found:
    """The places that an exception is about: bindings, the line that Gin names, and the user's code."""

    bindings: Sequence[Suspect]
    gin: Location | None
    frame: CodePlace | None

    @property
    def culprit(self) -> Suspect | None:
        return next((suspect for suspect in self.bindings if suspect.is_convincing), None)

    @property
    def location(self) -> Location | None:
        """The line to change: that of the binding, if there is no doubt about it."""
        first = self.culprit.location if self.culprit else None
        second = next((suspect.location for suspect in self.bindings if suspect.may_be_the_place), None)
        return self.gin or first or (self.frame.location if self.frame else None) or second

    @property
    def in_words(self) -> str:
        listed = ", ".join(suspect.shown for suspect in self.bindings)
        return f"; it {'is' if self.culprit else 'may be'} about {listed}" if listed else ""


def _unknown(error: BaseException, stage: Stage, config: GinConfig | None, found: _Found, advice: str) -> Finding:
    """Returns the finding for an exception that no rule knows, RUN01."""
    place = library_frame(error)
    who = "T5X" if passed_through_t5x(error) else place.party if place else stage.value
    raised = f", raised in {found.frame or place}" if found.frame or place else ""
    calling = calls(error)
    scope = f" in the scope {calling[0].scope}" if calling and calling[0].scope else ""
    by = f", called by Gin as {calling[0].name}{scope}" if calling else ""
    location, culprit = found.location, found.culprit
    if location is None and config is not None:
        location = _line_of_call(calling[0].name if calling else "", config)
    fix = f"correct {culprit.key.short}; " if culprit else ""
    return Finding(
        "RUN01",
        Severity.ERROR,
        stage,
        f"{who} stopped with {error_text(root_cause(error)).rstrip('.')}{raised}{by}{found.in_words}{advice}",
        location,
        f"{fix}see the traceback in the run's log" if not fix else f"{fix}the traceback is in the run's log",
        culprit.key.short if culprit else None,
    )


def explain_misfit(error: BaseException, stage: Stage, config: GinConfig) -> Finding | None:
    """Returns the finding for a value that the harness's own code cannot take, and that is not what T5X declares.

    None if every value that may be meant is what its parameter declares: the mistake is the harness's.
    """
    wrong, meant = misfits(config), [suspect.key for suspect in suspects(error, config)]
    ranked = sorted(wrong, key=lambda key: (config.owner(key) not in meant, not config.is_of_user(config.owner(key))))
    key = next(iter(ranked), None) or refused_value(error, config)
    if key is None:
        return None
    owner = config.owner(key)
    declares = f", where {key.short} is declared as {wrong[key]}" if key in wrong else ""
    return Finding(
        "RUN01",
        Severity.ERROR,
        stage,
        f"{owner.short} = {format_value(config.written(owner), 80)}{declares}; {stage} cannot use it: "
        f"{error_text(root_cause(error))}",
        config.location(owner),
        f"give it {'a value of that type' if key in wrong else 'another value'}, or leave {key.parameter} out",
        owner.short,
    )


def _line_of_call(name: str, config: GinConfig) -> Location | None:
    """Returns the line that has Gin call a configurable, or binds one of its parameters; else the entry point's."""
    named = [key for key, value in config.items() if name and name in map(_last, config.references(value))]
    bound = [key for key, _ in config.items() if not key.is_macro and _last(key.selector) == name]
    entry = [BindingKey("", config.entry, parameter) for parameter in config.entry_bindings()]
    lines = [(key, at) for key in (*named, *bound, *entry) if (at := config.location(key)) is not None]
    own = [at for key, at in lines if config.is_of_user(key)]
    return next(iter(own or [at for _, at in lines]), None)


def _line_of_macro(text: str, config: GinConfig) -> Location | None:
    """Returns the line of the one macro that a text names, whether anything reads it or not; None if it names none."""
    words = set(re.findall(r"[\w./]+", text))
    named = [key for key, _ in config.items() if key.is_macro and key.scope in words]
    return config.location(named[0]) if len(named) == 1 else None


def _last(name: str) -> str:
    return name.split(".")[-1]


def _evaluated_task(texts: list[str]) -> str | None:
    """Returns the task of which SeqIO says that it could not compute its metrics."""
    match = next(filter(None, (re.match(r"Failed to evaluate task ([\w.:-]+): ", text) for text in texts)), None)
    return match.group(1) if match else None


def _raised(error: BaseException, frame: CodePlace | None, other: str = "") -> str:
    return f"{frame or other} raised {error_text(root_cause(error))}"


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
