"""What the early calls of metrics found, in words: the function, what it raised and what it was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import seqio

from t5x_harness.resolve.error_texts import error_text, one_line
from t5x_harness.resolve.frames import is_deliberate, root_cause, user_frame
from t5x_harness.resolve.metric_errors import LATE, POSTPROCESS, computed, kind_of, postprocessed
from t5x_harness.resolve.parties import shown_path
from t5x_harness.spec import Finding, Location, Mode, Severity, Stage
from t5x_harness.upstream.seqio import metric_functions

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.samples import Sample

_LONGEST = 60
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def finding_of(error: Exception, given: str, run: Resolved, role: DataRole, sample: Sample) -> Finding:
    """Builds the finding for an exception of SeqIO's evaluator.

    Args:
      error: the exception.
      given: the model outputs that it was raised for, in words; empty where it was raised without.
      run: the run.
      role: the dataset whose predictions are evaluated.
      sample: the task with the examples that it was given.
    """
    kind, task = kind_of(error), sample.task
    code, severity, location = kind.code, Severity.ERROR, None
    if code == "SEQ22":
        message = f"two metric functions of task {task.name} give the same key: {one_line(root_cause(error))}"
    elif code == "SEQ23":
        message, location = _signature(task)
    elif code == "INF12":
        name, problem = _unwritable(error)
        message = f"the metrics of task {task.name} cannot be written: {problem}"
        location = _definition(_function_with(name, task))
    else:
        message = f"the metrics of task {task.name} cannot be computed: {_raised(error, code)}{_given(error, given)}"
        if code == "SEQ20" and not sample.is_all and is_deliberate(root_cause(error)):
            severity = Severity.WARNING
            message += f"; it was given the first {len(sample.examples)} examples, which may be what it refuses"
    if code == "SEQ20" and run.config.mode is Mode.TRAIN and _is_concurrent(run):
        code, message = "SEQ21", message + LATE
    frame = user_frame(error)
    own = _definition(task.postprocessor) if code == POSTPROCESS else _metric_line(task)
    place = location or (frame.location if frame else None) or own or run.registrations.place(task.name)
    key = role.key(run.config, "mixture_or_task_name")
    return Finding(
        code,
        severity,
        Stage.RESOLVE,
        message,
        place or run.config.location(key),
        kind.fix,
        key.short if key else None,
    )


def _raised(error: Exception, code: str) -> str:
    cause, frame = root_cause(error), user_frame(error)
    kind = "its postprocess_fn" if code == POSTPROCESS else "a metric function"
    return f"{frame or kind} raised {error_text(cause)}"


def _given(error: Exception, given: str) -> str:
    """Returns what the function got: the very text, where a postprocess function raised."""
    text = postprocessed(error)
    if text is None:
        return f", given {given}" if given else ""
    shown = _short(text.value)
    return f", given the target {shown}" if text.is_target else f", given the prediction {shown} ({given})"


def _is_concurrent(run: Resolved) -> bool:
    return run.config.value(run.config.owner_of("concurrent_metrics")) is not False


def _signature(task: seqio.Task) -> tuple[str, Location | None]:
    """Returns the metric function that SeqIO cannot tell how to call."""
    known = (("targets", "predictions"), ("targets", "scores"), ("targets", "predictions", "aux_values"))
    for function in metric_functions(task):
        names = _positional(function)
        if names not in known:
            name = getattr(function, "__name__", type(function).__name__)
            return (
                f"metric function {name} of task {task.name} has the positional arguments ({', '.join(names)}), from "
                "which SeqIO cannot tell what to call it with",
                _definition(function),
            )
    return f"a metric function of task {task.name} has positional arguments that SeqIO does not know", None


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.items()
    return tuple(n for n, p in parameters if p.default is inspect.Parameter.empty and p.kind is _POSITIONAL)


def _metric_line(task: seqio.Task) -> Location | None:
    """Returns where the task's metric function is defined, if it has one only."""
    functions = metric_functions(task)
    return _definition(functions[0]) if len(functions) == 1 else None


def _definition(function: Callable[..., Any] | None) -> Location | None:
    if function is None:
        return None
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
    return Location(shown_path(code.co_filename), code.co_firstlineno) if code else None


def _function_with(metric: str, task: seqio.Task) -> Callable[..., Any] | None:
    """Returns the metric function that has a metric's name among its constants, if only one has."""
    found = [
        function
        for function in metric_functions(task)
        for constants in [getattr(getattr(function, "__code__", None), "co_consts", ())]
        if metric in constants or any(isinstance(names, tuple) and metric in names for names in constants)
    ]
    return found[0] if len(found) == 1 else None


def _unwritable(error: Exception) -> tuple[str, str]:
    """Returns the metric that a logger choked on, empty where it is not known, and what is wrong with it."""
    logger, values = computed(error)
    cause = root_cause(error)
    raised = f"{logger} raised {error_text(cause)}"
    bad = {name: value for name, value in values.items() if not _is_number(value)}
    if not bad:
        return "", raised
    name, value = next(iter(bad.items()))
    return name, f"{name} is {_short(getattr(value, 'value', value))}, no number, and {raised}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_number(value: Any) -> bool:
    if isinstance(value, seqio.metrics.MetricValue) and not isinstance(value, seqio.metrics.Scalar):
        return True  # loggers know what else there is
    try:
        float(np.array(getattr(value, "value", value)))
    except (TypeError, ValueError):
        return False
    return True
