"""Turns an exception of a run into a :class:`~t5x_harness.spec.Finding`: what failed, where, the values, the fix.

A run stops with an exception from gin, SeqIO, T5X, JAX or the user's own module. Its text often names no file, and its
traceback leads through a library that the user does not own. :func:`explain` rewords the texts that the failure
catalog knows. For any other exception it names the line that raised it (the user's own, or the library's), the
configurable that Gin was calling, and the bindings that it is about. The traceback itself belongs in the run's log.
"""

import contextlib
import dataclasses
import importlib
import pkgutil
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.values import format_value
from t5x_harness.lint import t5_package
from t5x_harness.resolve.datasets import DuplicateRegistration, versions_asked
from t5x_harness.resolve.exceptions import (
    CodePlace,
    causes,
    error_text,
    full_text,
    library_frame,
    passed_through_t5x,
    raised_by_harness,
    raised_by_user_code,
    root_cause,
    shown_path,
    unsortable_keys,
    user_frame,
    users_callee,
)
from t5x_harness.resolve.known_errors import reword
from t5x_harness.resolve.metric_failures import failure_in_stage
from t5x_harness.resolve.suspects import Suspect, calls, evident, misfits, refused_value, suspects
from t5x_harness.spec import Finding, Location, Severity, Stage
from t5x_harness.standins.rows import request_in
from t5x_harness.system.misspelling import closest
from t5x_harness.system.network_filter import HOW_TO_ALLOW

_REPORT_IT = "report it, with the traceback in the run's log, the Gin files and what `t5x-harness doctor` prints"
_LENGTHS = "SEQ15"
"""The one mistake found by SeqIO that is in the config; the others are in the user's module."""


def log_traceback(error: BaseException) -> None:
    """Writes the whole traceback into the run's log, which is this process's standard error."""
    with contextlib.suppress(OSError):  # even on a full disk, the finding counts
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()


def explain(error: BaseException, stage: Stage, config: GinConfig | None, program: GinProgram | None = None) -> Finding:
    """Builds the finding for an exception that ended a stage.

    Args:
      error: the exception.
      stage: the stage that it ended.
      config: the parsed config; None if parsing itself failed.
      program: the statements, to give gin's ``In file`` an include chain; taken from ``config`` if not given.
    """

    def finding(code: str, message: str, location: Location | None, fix: str) -> Finding:
        return Finding(code, Severity.ERROR, stage, message, location, fix)

    texts = [full_text(link) for link in causes(error)]
    where = _gin_location(texts, program or (config.program if config else None))
    if twice := next((link for link in causes(error) if isinstance(link, DuplicateRegistration)), None):
        at = where if twice.has_two_names else None
        return finding("SEQ05", twice.message, at or twice.location, twice.fix)
    if evaluated := next(filter(None, (re.match(r"Failed to evaluate task ([\w.:-]+): ", t) for t in texts)), None):
        return failure_in_stage(evaluated[1], error, stage)
    found = _Evidence(suspects(error, config) if config else [], where, user_frame(error))
    if asked := next(filter(None, map(request_in, texts)), None):
        return finding("RUN09", asked.message, found.location, asked.fix)
    if known := reword(texts):
        if known.code == "GIN15":
            return finding("GIN15", *_missing_module(error, found.frame, where))
        location = found.location
        if known.code.startswith("SEQ") and known.code != _LENGTHS:
            location = found.frame.location if found.frame else where
        elif found.culprit is None and config is not None:
            location = where or _line_of_macro(known.message, config) or location
        return finding(known.code, known.message, location, next(filter(None, map(versions_asked, texts)), known.fix))
    # The emulated Google Cloud's proxy does not know which run asked for a host that it refuses.
    refused = any("t5x-harness refuses " in text for text in texts)
    advice = f"; {HOW_TO_ALLOW}" if refused else ""
    raised = _what_was_raised(error)
    if not raised_by_user_code(error) and (callee := users_callee(error)):
        message = f"{callee} is not as its caller needs it: {raised}{found.in_words}"
        return finding("USR01", message, callee.location, f"correct {callee.function}")
    if found.frame and raised_by_user_code(error):
        what = found.frame.function if found.frame.is_named else "that line"
        fix = "allow the host, or keep the file here" if refused else f"correct {what}"
        return finding("USR01", f"{found.frame} raised {raised}{found.in_words}{advice}", found.frame.location, fix)
    if raised_by_harness(error):
        message = f"t5x-harness itself stopped with {raised}: neither T5X nor your code was running"
        return finding("RUN12", message, None, _REPORT_IT)
    return _unknown(error, stage, config, found, advice)


@dataclasses.dataclass(frozen=True)
class _Evidence:
    """The places that an exception is about: bindings, the line that Gin names, and the user's code."""

    bindings: Sequence[Suspect]
    gin: Location | None
    frame: CodePlace | None

    @property
    def culprit(self) -> Suspect | None:
        return next((suspect for suspect in self.bindings if suspect.is_convincing), None)

    @property
    def location(self) -> Location | None:
        """The line to change; a binding's line only if there is no doubt about the binding."""
        first = self.culprit.location if self.culprit else None
        second = next((suspect.location for suspect in self.bindings if suspect.may_be_the_place), None)
        return self.gin or first or (self.frame.location if self.frame else None) or second

    @property
    def in_words(self) -> str:
        listed = ", ".join(suspect.shown for suspect in self.bindings)
        return f"; it {'is' if self.culprit else 'may be'} about {listed}" if listed else ""


def _unknown(error: BaseException, stage: Stage, config: GinConfig | None, found: _Evidence, advice: str) -> Finding:
    """Builds RUN01, the finding for an exception that nothing else explains."""
    place = library_frame(error)
    who = "T5X" if passed_through_t5x(error) else place.party if place else stage.value
    raised = f", raised in {found.frame or place}" if found.frame or place else ""
    calling = calls(error)
    scope = f" in the scope {calling[0].scope}" if calling and calling[0].scope else ""
    by = f", called by Gin as {calling[0].name}{scope}" if calling else ""
    location, culprit = found.location, found.culprit
    if location is None and config is not None:
        location = _line_of_call(calling[0].name if calling else "", config)
    what = f"{who} stopped with {_what_was_raised(error).rstrip('.')}{raised}{by}{found.in_words}{advice}"
    name = culprit.key.short if culprit else None
    fix = f"correct {name}; the traceback is in the run's log" if name else "see the traceback in the run's log"
    return Finding("RUN01", Severity.ERROR, stage, what, location, fix, name)


def _what_was_raised(error: BaseException) -> str:
    return "; ".join(filter(None, (error_text(root_cause(error)), unsortable_keys(error))))


def explain_misfit(error: BaseException, stage: Stage, config: GinConfig) -> Finding | None:
    """Builds the finding for a bound value that the harness's own code cannot use.

    Returns:
      The finding; None if the error gives no evidence of any value of another type than T5X declares: then the mistake
      is in the harness.
    """
    wrong, evidence = misfits(config), evident(error, config)
    likely = (key for owner in evidence for key in wrong if config.owner(key) == owner)
    key = next(likely, None) or refused_value(error, config)
    if key is None:
        return None
    owner = config.owner(key)
    declares = f", where {key.short} is declared as {wrong[key]}" if key in wrong else ""
    given = f"{owner.short} = {format_value(config.written(owner), 80)}{declares}"
    message = f"{given}; {stage} cannot use it: {error_text(root_cause(error))}"
    fix = f"give it {'a value of that type' if key in wrong else 'another value'}, or leave {key.parameter} out"
    return Finding("RUN01", Severity.ERROR, stage, message, config.location(owner), fix, owner.short)


def _missing_module(
    error: BaseException, frame: CodePlace | None, where: Location | None
) -> tuple[str, Location | None, str]:
    """Returns the message, the place and the fix for an import that failed.

    Args:
      error: the exception; a ``ModuleNotFoundError`` is among its causes, or in its text.
      frame: the innermost line of the user's own Python; None if the config itself imports the module.
      where: the line of the config that imports the module, directly or not.
    """
    name = next((link.name for link in causes(error) if isinstance(link, ModuleNotFoundError) and link.name), "")
    if frame is None or not name:
        return f"module {name or 'of this import'} cannot be imported", where, _fix_of_import(name)
    by = f" ({where} imports {frame.file})" if where is not None and where.file.endswith(".gin") else ""
    return f"{frame.file} imports {name}, which is not there{by}", frame.location, _fix_of_import(name)


def _fix_of_import(name: str) -> str:
    if not name:
        return "correct the import, or add the folder of its module to python_path"
    top = name.partition(".")[0]
    if top == t5_package.NAME:
        return f"install the package t5, here and in the image of the job: {t5_package.INSTALL}"
    parent, _, last = name.rpartition(".")
    with contextlib.suppress(Exception):  # an exception of the package says nothing about the missing module
        package = importlib.import_module(parent)
        if close := closest(last, [module.name for module in pkgutil.iter_modules(getattr(package, "__path__", []))]):
            return f"write {package.__name__}.{close}"
        return f"{package.__name__} is there, but has no {last}: check its spelling, and the version of {top}"
    # A package's name on PyPI may differ from the name that it is imported under.
    return (
        f"install the package that has {top} (python -m pip install {top}, most often), here and in the image of the "
        f"job; if {top} is your own, add its folder to python_path"
    )


def _line_of_call(name: str, config: GinConfig) -> Location | None:
    """Returns the line that has Gin call a configurable or binds one of its parameters, or else the entry point's."""
    named = [key for key, value in config.items() if name and name in map(_last, config.references(value))]
    bound = [key for key in config if not key.is_macro and _last(key.selector) == name]
    entry = [BindingKey("", config.entry, parameter) for parameter in config.entry_bindings()]
    lines = [(key, at) for key in (*named, *bound, *entry) if (at := config.location(key)) is not None]
    own = [at for key, at in lines if config.is_of_user(key)]
    return next(iter(own or [at for _, at in lines]), None)


def _line_of_macro(text: str, config: GinConfig) -> Location | None:
    """Returns the line of the only macro that a text names, whether or not the macro is used."""
    words = set(re.findall(r"[\w./]+", text))
    named = [key for key in config if key.is_macro and key.scope in words]
    return config.location(named[0]) if len(named) == 1 else None


def _last(name: str) -> str:
    return name.split(".")[-1]


def _gin_location(texts: list[str], program: GinProgram | None) -> Location | None:
    """Returns the innermost file and line that gin names, with the includes that led there."""
    named = next(filter(None, (re.search(r"In file \"([^\"]+)\", line (\d+)", text) for text in texts)), None)
    if named is None:
        return None
    file, line = named[1], int(named[2])
    statements = (statement.location for statement in (program.statements if program else ()))
    known = (at for at in statements if at.line == line and Path(at.file).name == Path(file).name)
    return next(known, Location(shown_path(file), line))
