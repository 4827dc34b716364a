"""Explains a failure while SeqIO computed a task's metrics: the part of the task, its arguments, and the fix."""

import errno
import inspect
import re
import traceback
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import seqio

from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.exceptions import (
    causes,
    error_text,
    is_deliberate,
    one_line,
    places,
    root_cause,
    user_frame,
)
from t5x_harness.resolve.pipeline import Part, shown
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.samples import Sample
from t5x_harness.spec import Finding, Location, Mode, Severity, Stage
from t5x_harness.upstream.seqio import metric_functions, metric_objects

_LATE = (
    "; with concurrent_metrics this runs in a thread beside training, and T5X shows its failure at the next eval or at "
    "the end"
)
_LONGEST = 60
_SEQIO = Path(seqio.__file__).parent
_POSTPROCESSING = ("postprocess", "postprocess_fn")
_CALLS = (("targets", "predictions"), ("targets", "scores"), ("targets", "predictions", "aux_values"))
"""The positional arguments with which SeqIO can call a metric function."""

_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT)
_REFUSED = ("ConnectionError", "ConnectTimeout", "MaxRetryError", "UnavailableError", "gaierror")
"""Names of exceptions from libraries that are not imported just for this."""


def failure_of(error: BaseException) -> tuple[str, str]:
    """Returns the rule's code for an exception from a part of a task in SeqIO's evaluator, and the smallest fix."""
    cause = root_cause(error)
    text = str(cause)
    if text.startswith("Duplicate metric key "):
        return "SEQ22", "give each metric function keys of its own"
    if text.startswith("Metric functions must have positional arguments"):
        *others, last = (f"({', '.join(names)})" for names in _CALLS)
        return "SEQ23", f"name them {', '.join(others)} or {last}, in this order"
    frames = [(file, frame.f_code.co_name) for file, frame in _seqio_frames(error)]
    if any(file == "loggers.py" for file, _ in frames):
        return "INF12", "return numbers, or the seqio.metrics value that is meant: Text, Image, Audio, Histogram"
    if (logger := _own_logger(error)) is not None:
        return "INF12", f"correct {type(logger).__name__}, or what it is given"
    if any(file == "metrics.py" and name in _POSTPROCESSING for file, name in frames):
        if re.search(r"unexpected keyword argument '(?:example|is_target)'", text):
            return "SEQ24", "let the postprocess function take **kwargs: SeqIO passes example=... and is_target=..."
        return "SEQ24", "make the postprocess function accept any text that an untrained model may produce"
    if isinstance(cause, KeyError) and isinstance(cause.args[0], seqio.metrics.ModelOutputType):
        return "SEQ20", "use PREDICTION, PREDICTION_WITH_AUX or SCORE: T5X gives SeqIO no other model outputs"
    if re.search(r"object has no attribute 'items'", text) and frames[-1][0] == "evaluation.py":
        return "SEQ20", "return a dict of names and values from the metric function"
    return "SEQ20", "correct the metric function"


def is_out_of_reach(error: BaseException) -> bool:
    """Tells whether a function failed because it needs the network, so that nothing is known about it."""
    return any(
        isinstance(link, (urllib.error.URLError, ConnectionError, TimeoutError))
        or (isinstance(link, OSError) and link.errno in _UNREACHABLE)
        or type(link).__name__ in _REFUSED
        for link in causes(error)
    )


def failure_in_stage(task: str, error: BaseException, stage: Stage) -> Finding:
    """Builds the finding for a metric that raised while a stage ran, perhaps in a thread alongside training."""
    (code, fix), frame = failure_of(error), user_frame(error)
    beside = stage is Stage.TRAIN and any(
        place.function in ("result", "_async_compute_metrics") for place in places(error)
    )
    code, late = _when(code, beside)
    done = "written" if code == "INF12" else "computed"
    message = f"the metrics of task {task} cannot be {done}: {_raised(error, code)}{late}"
    return Finding(code, Severity.ERROR, stage, message, frame.location if frame else None, fix)


def failure_in_call(error: Exception, given: str, run: Resolved, role: DataRole, sample: Sample) -> Finding:
    """Builds the finding for an exception of SeqIO's evaluator that was called early.

    Args:
      error: the exception.
      given: the model outputs for which it was raised, in words; empty if it was raised without any.
      run: the run.
      role: the dataset whose predictions are evaluated.
      sample: the task and the examples that were evaluated.
    """
    (code, fix), task = failure_of(error), sample.task
    severity, location = Severity.ERROR, None
    if code == "SEQ22":
        message = f"two metric functions of task {task.name} give the same key: {one_line(root_cause(error))}"
    elif code == "SEQ23":
        message, location = _signature(task)
    elif code == "INF12":
        name, problem = _unwritable(error)
        message = f"the metrics of task {task.name} cannot be written: {problem}"
        location = definition_place(function_with(name, task))
    elif (returned := _without_names(error)) is not None:
        function, what = returned
        location = definition_place(function)
        message = f"the metrics of task {task.name} cannot be computed: {Part.of(function)} returned {what}, not a dict"
    else:
        message = f"the metrics of task {task.name} cannot be computed: {_raised(error, code)}"
        message += _given(error, given)
        if code == "SEQ20" and not sample.is_all and is_deliberate(root_cause(error)):
            severity = Severity.WARNING
            message += f"; it was given the first {len(sample.examples)} examples, which may be what it refuses"
    concurrent = run.config.value(run.config.owner_of("concurrent_metrics")) is not False
    code, late = _when(code, run.config.mode is Mode.TRAIN and concurrent)
    frame, metrics = user_frame(error), metric_functions(task)
    own = task.postprocessor if code == "SEQ24" else metrics[0] if len(metrics) == 1 else None
    place = (
        location or (frame.location if frame else None) or definition_place(own) or run.registrations.place(task.name)
    )
    key = role.key(run.config, "mixture_or_task_name")
    place, binding = place or run.config.location(key), key.short if key else None
    return Finding(code, severity, Stage.RESOLVE, message + late, place, fix, binding)


def _when(code: str, beside_training: bool) -> tuple[str, str]:
    """Returns the code of a failure, and words to add to its message if T5X shows it only later."""
    return ("SEQ21", _LATE) if code == "SEQ20" and beside_training else (code, "")


def _raised(error: BaseException, code: str) -> str:
    part = {"SEQ24": "its postprocess_fn", "INF12": "a logger"}.get(code, "a metric function")
    return f"{user_frame(error) or part} raised {error_text(root_cause(error))}"


def _given(error: Exception, given: str) -> str:
    """Describes the arguments of the function; for a postprocess function, with the text itself."""
    for file, frame in _seqio_frames(error):
        if file == "metrics.py" and frame.f_code.co_name in _POSTPROCESSING:
            options = frame.f_locals.get("postprocess_kwargs", {})
            shown = _short(frame.f_locals.get("targets_or_predictions"))
            is_target = options.get("is_target")
            return f", given the target {shown}" if is_target else f", given the prediction {shown} ({given})"
    return f", given {given}" if given else ""


def _signature(task: seqio.Task) -> tuple[str, Location | None]:
    """Describes the metric function that SeqIO does not know how to call, and the place where it is defined."""
    for function in metric_functions(task):
        parameters = inspect.signature(function).parameters.items()
        names = tuple(n for n, p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)
        if names not in _CALLS:
            name = getattr(function, "__name__", type(function).__name__)
            return (
                f"metric function {name} of task {task.name} has the positional arguments ({', '.join(names)}), from "
                "which SeqIO cannot tell what to call it with",
                definition_place(function),
            )
    return f"a metric function of task {task.name} has positional arguments that SeqIO does not know", None


def definition_place(function: Callable[..., Any] | None) -> Location | None:
    """Returns the line where the user defines a function; None for code of others, native code and None."""
    return Part.of(function).place


def function_with(metric: str, task: seqio.Task) -> Callable[..., Any] | None:
    """Finds the one metric function that has a metric's name among its constants, if there is exactly one."""
    found = [
        function
        for function in metric_functions(task)
        for constants in [getattr(getattr(function, "__code__", None), "co_consts", ())]
        if metric in constants or any(isinstance(names, tuple) and metric in names for names in constants)
    ]
    return found[0] if len(found) == 1 else None


def _without_names(error: Exception) -> tuple[Callable[..., Any], str] | None:
    """Returns the metric function that returned something other than a dict, and what; None if none did."""
    for file, frame in _seqio_frames(error):
        if file == "evaluation.py" and "task_metrics" in frame.f_locals:
            task = frame.f_locals["task"]  # SeqIO computes the objects first
            metrics: list[Callable[..., Any]] = [*map(type, metric_objects(task)), *metric_functions(task)]
            for value, metric in zip(frame.f_locals["task_metrics"], metrics, strict=False):
                if not hasattr(value, "items"):
                    return metric, shown(value)
    return None


def _unwritable(error: Exception) -> tuple[str, str]:
    """Returns the metric that a logger could not write (empty if unknown), and what is wrong with it."""
    logger: str = "a logger"
    metrics: Mapping[str, Any] = {}
    for file, frame in _seqio_frames(error):
        if file == "loggers.py" and "metrics" in frame.f_locals:
            logger, metrics = type(frame.f_locals.get("self")).__name__, frame.f_locals["metrics"]
    raised = f"{logger} raised {error_text(root_cause(error))}"
    bad = next(((name, value) for name, value in metrics.items() if not _is_writable(value)), None)
    if bad is None:
        return "", raised
    name, value = bad
    return name, f"{name} is {_short(getattr(value, 'value', value))}, not a number, and {raised}"


def _own_logger(error: BaseException) -> Any:
    """Returns the logger that SeqIO called when the exception came; None if it was not calling any."""
    calling = (frame.f_locals.get("logger") for file, frame in _seqio_frames(error) if file == "evaluation.py")
    return next((logger for logger in calling if isinstance(logger, seqio.Logger)), None)


def _is_writable(value: Any) -> bool:
    if isinstance(value, seqio.metrics.MetricValue) and not isinstance(value, seqio.metrics.Scalar):
        return True  # loggers know the other kinds
    try:
        float(np.array(getattr(value, "value", value)))
    except (TypeError, ValueError):
        return False
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _seqio_frames(error: BaseException) -> Iterator[tuple[str, FrameType]]:
    """Yields every frame in SeqIO with the name of its file, outermost first."""
    for link in causes(error):
        for frame, _ in traceback.walk_tb(link.__traceback__):
            path = Path(frame.f_code.co_filename)
            if path.parent == _SEQIO:
                yield path.name, frame
