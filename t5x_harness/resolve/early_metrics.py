"""Metrics and postprocessors called early: on the sampled examples, with model outputs generated for them.

T5X calls them only after all predictions were made, hours into a job, and an exception then ends the job.  Here SeqIO's
own evaluator calls them, with SeqIO's own loggers, so that what passes here passes there.
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
from t5x_harness.resolve.metric_calls import MetricCall, call
from t5x_harness.resolve.metric_failures import failure_in_call, failure_of, is_out_of_reach
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
"""The method of T5X's models that computes what a metric asks for."""

_GROUPS = (12, 10, 9, 8, 7)
"""Sizes of groups of examples that may belong together, such as the choices of one question, or their divisors."""


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
            called = _call(role, sample, loggers, min(SECONDS, until - time.monotonic()))
            doubt = _add_outcome(called, run, role, sample, report)
        if doubt is not None:
            report.not_checked.append(f"the metrics of {task.name}: {doubt}")


def _call(role: DataRole, sample: Sample, loggers: Sequence[Any], seconds: float) -> MetricCall:
    """Calls a task's metrics on all sampled examples, or on fewer if the last ones may be part of a group only."""
    if seconds <= 0:
        return MetricCall(late=True)
    until = time.monotonic() + seconds
    called = call(sample.task, role, sample.examples, loggers, seconds)
    if called.error is None or sample.is_all or failure_of(called.error).code != "SEQ20":
        return called
    number = len(sample.examples)
    for fewer in sorted({number // size * size for size in _GROUPS} - {0, number}, reverse=True):
        left = until - time.monotonic()
        again = call(sample.task, role, sample.examples[:fewer], loggers, left) if left > 0 else MetricCall(late=True)
        if again.error is None:
            return again
    return called


def _add_outcome(called: MetricCall, run: Resolved, role: DataRole, sample: Sample, report: StageReport) -> str | None:
    """Adds the outcome to the report; returns why it proves nothing, if it does not."""
    if called.values:
        report.fact(f"{sample.task.name} metrics", f"{_shown(called.values)} with the targets as predictions")
    if called.error is not None:
        log_traceback(called.error)
        if is_out_of_reach(called.error):
            return "they need the network"
        if not called.given and failure_of(called.error).code != "SEQ23":
            return f"SeqIO's evaluator cannot be built for the sampled examples: {one_line(root_cause(called.error))}"
        report.add([failure_in_call(called.error, called.given, run, role, sample)])
    return "they took too long" if called.late else None


def _shown(values: Mapping[str, Any]) -> str:
    shown = []
    for name, value in values.items():
        number = getattr(value, "value", value)
        text = f"{number:.4g}" if isinstance(number, int | float | np.number) else f"a {type(value).__name__}"
        shown.append(f"{name} {text}")
    return ", ".join(shown)


def _loggers(run: Resolved, report: StageReport) -> list[Any]:
    """Returns SeqIO's own among the loggers that the config gives the evaluator; others may write anywhere."""
    bound = copy.deepcopy(run.config.value(run.config.owner(run.config.find("logger_cls", "Evaluator"))))
    own = [logger for logger in bound or () if _is(logger, *_LOGGERS)]
    for logger in bound or ():
        if logger not in own:
            report.not_checked.append(f"whether {getattr(logger, '__name__', logger)} can write the metrics")
    return own


def _is(given: Any, *classes: type) -> bool:
    """Tells whether an object is one of these classes, or the subclass of the same name that gin makes of one."""
    return isinstance(given, type) and any(
        issubclass(given, each) and (given.__module__, given.__qualname__) == (each.__module__, each.__qualname__)
        for each in classes
    )


def _doubt(run: Resolved, sample: Sample) -> str | None:
    """Returns why a task's metrics cannot be judged without the model or the evaluator that the config binds."""
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
    """Yields the methods of the model that a task's metrics need; none if SeqIO cannot call a metric."""
    try:
        asked = {metric.model_output_type for metric in task.metric_objs}
    except ValueError:  # the evaluator also raises it, and is judged by that
        return
    yield from (_METHODS[kind] for kind in sorted(asked) if kind in _METHODS)
