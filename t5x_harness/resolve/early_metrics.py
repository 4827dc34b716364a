"""Metrics and postprocessors called early: on the sampled examples, with model outputs generated for them.

T5X calls them only after all predictions were made, hours into a job, and an exception there ends it.  Here they are
called by SeqIO's own evaluator, with SeqIO's own loggers, so that what passes here passes there.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.error_texts import one_line
from t5x_harness.resolve.explanation import log_traceback
from t5x_harness.resolve.frames import root_cause
from t5x_harness.resolve.metric_calls import Calls, call
from t5x_harness.resolve.metric_errors import is_out_of_reach, kind_of
from t5x_harness.resolve.metric_faults import finding_of
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.samples import Sample

SECONDS = 20.0
"""How long the metrics of one task may take."""

_SECONDS_IN_ALL = 60.0

_LOGGERS = (seqio.PyLoggingLogger, seqio.TensorBoardLogger, seqio.loggers.TensorBoardLoggerV1, seqio.JSONLogger)

_METHODS = {
    seqio.metrics.ModelOutputType.PREDICTION: "predict_batch",
    seqio.metrics.ModelOutputType.PREDICTION_WITH_AUX: "predict_batch_with_aux",
    seqio.metrics.ModelOutputType.SCORE: "score_batch",
}
"""The method of T5X's models that gives what a metric asks for."""

_GROUPS = (12, 10, 9, 8, 7)
"""Sizes of groups of examples that may belong together, as the choices of one question do; and their divisors."""


def call_metrics(run: Resolved, report: StageReport) -> None:
    """Calls the metrics of every sampled task whose metrics the run computes.

    Args:
      run: the resolved config with the sampled examples.
      report: gets what goes wrong, the values for perfect predictions, and what was not called.
    """
    until = time.monotonic() + _SECONDS_IN_ALL
    loggers = _loggers(run, report)
    for role, sample in run.sampled():
        task = sample.task
        if not (run.is_evaluated(role, task) and role.dataset.split in task.splits and sample.examples):
            continue
        doubt = _doubt(run, sample)
        if doubt is None:
            calls = _call(role, sample, loggers, min(SECONDS, until - time.monotonic()))
            doubt = _add_outcome(calls, run, role, sample, report)
        if doubt is not None:
            report.not_checked.append(f"the metrics of {task.name}: {doubt}")


def _call(role: DataRole, sample: Sample, loggers: Sequence[Any], seconds: float) -> Calls:
    """Returns the calls on all that was sampled, or on fewer where a metric may only have missed the end of a group."""
    if seconds <= 0:
        return Calls(late=True)
    until = time.monotonic() + seconds
    calls = call(sample.task, role, sample.examples, loggers, seconds)
    if calls.error is None or sample.is_all or kind_of(calls.error).code != "SEQ20":
        return calls
    number = len(sample.examples)
    for fewer in sorted({number // size * size for size in _GROUPS} - {0, number}, reverse=True):
        left = until - time.monotonic()
        again = call(sample.task, role, sample.examples[:fewer], loggers, left) if left > 0 else Calls(late=True)
        if again.error is None:
            return again
    return calls


def _add_outcome(calls: Calls, run: Resolved, role: DataRole, sample: Sample, report: StageReport) -> str | None:
    """Puts the outcome of the calls where it belongs; returns what leaves them without a judgement."""
    task = sample.task
    if calls.perfect:
        report.fact(f"{task.name} metrics", f"{_shown(calls.perfect)} with the targets as predictions")
    if calls.error is not None:
        log_traceback(calls.error)
        if is_out_of_reach(calls.error):
            return "they need the network"
        if not calls.given and kind_of(calls.error).code != "SEQ23":
            return f"SeqIO's evaluator cannot be built for the sampled examples: {one_line(root_cause(calls.error))}"
        report.add([finding_of(calls.error, calls.given, run, role, sample)])
    return "they took too long" if calls.late else None


def _shown(values: Mapping[str, Any]) -> str:
    shown = []
    for name, value in values.items():
        number = getattr(value, "value", value)
        text = f"{number:.4g}" if isinstance(number, int | float | np.number) else f"a {type(value).__name__}"
        shown.append(f"{name} {text}")
    return ", ".join(shown)


def _loggers(run: Resolved, report: StageReport) -> list[Any]:
    """Returns the loggers that the config gives the evaluator, those that are SeqIO's; others may write anywhere."""
    key = run.config.find("logger_cls", "Evaluator")
    bound = copy.deepcopy(run.config.value(run.config.owner(key))) if key else ()
    own = [logger for logger in bound or () if _is(logger, *_LOGGERS)]
    for logger in bound or ():
        if logger not in own:
            report.not_checked.append(f"whether {getattr(logger, '__name__', logger)} can write the metrics")
    return own


def _is(given: Any, *classes: type) -> bool:
    """Returns whether it is one of these classes, or what gin makes of one: a subclass under the same name."""
    return isinstance(given, type) and any(
        issubclass(given, each) and (given.__module__, given.__qualname__) == (each.__module__, each.__qualname__)
        for each in classes
    )


def _doubt(run: Resolved, sample: Sample) -> str | None:
    """Returns why nothing can be said of a task's metrics without the model or the evaluator that the config binds."""
    evaluator = run.config.build("inference_evaluator_cls") or seqio.Evaluator
    if not _is(evaluator, seqio.Evaluator):
        return f"{getattr(evaluator, '__name__', 'the evaluator')} computes them in a way of its own"
    task = sample.task
    for method in _methods(task):
        owner = getattr(getattr(type(run.model), method, None), "__module__", None) or ""
        if not owner.startswith("t5x."):
            return f"what {type(run.model).__name__}.{method} gives is not known"
    targets = sample.values("targets")
    if len(targets) < len(sample.examples) or any(t.ndim != 1 or t.dtype.kind not in "iu" for t in targets):
        return "their targets are not token ids, so no predictions can be generated"
    if seqio.get_mixture_or_task(task.name) is not task:
        return "a mixture has the same name"
    return None


def _methods(task: seqio.Task) -> Iterator[str]:
    """Yields the methods of the model that a task's metrics need; none where a metric is not SeqIO's to call."""
    try:
        asked = {metric.model_output_type for metric in task.metric_objs}
    except ValueError:  # the evaluator raises it, too, and is judged by that
        return
    yield from (_METHODS[kind] for kind in sorted(asked) if kind in _METHODS)
