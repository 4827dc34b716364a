"""Calls metrics and postprocessors early: on the sampled examples, with model outputs generated for them.

T5X calls them only after all predictions are made, hours into a job, and an exception then ends the job. Here SeqIO's
own evaluator calls them, with SeqIO's own loggers, so whatever passes here also passes there. It runs in a thread, for
a bounded time: a metric may load a model of its own, or wait for a server. The outputs have the shapes and dtypes that
T5X's models produce: the token ids of all examples as one array that is padded with zeros, a score for each example,
and both together for a metric that asks for both.
"""

import copy
import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.exceptions import one_line, root_cause
from t5x_harness.resolve.explanation import log_traceback
from t5x_harness.resolve.metric_failures import failure_in_call, failure_of, is_out_of_reach
from t5x_harness.resolve.pipeline import wrong_metric
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.samples import Sample, read_within
from t5x_harness.resolve.silent_metrics import shown_value, silent_mistakes
from t5x_harness.standins.sources import dataset_of

_MOST_OUTPUTS = 5
"""The largest number of outputs to generate."""

_LENGTH = 16
"""The smallest number of tokens in a random prediction."""

_ONLY_SCORES = {seqio.metrics.ModelOutputType.SCORE}
SECONDS = 20.0
"""Seconds that the metrics of one task may take."""

_SECONDS_IN_ALL = 60.0
_LOGGERS = (seqio.PyLoggingLogger, seqio.TensorBoardLogger, seqio.loggers.TensorBoardLoggerV1, seqio.JSONLogger)
_GROUPS = (12, 10, 9, 8, 7)
"""Likely sizes of groups of examples, such as the choices of one question, or multiples of such sizes."""


@dataclasses.dataclass(frozen=True)
class MetricCall:
    """The outcome of calling a task's metrics.

    Attributes:
      values: the metrics for the targets themselves as predictions; None if they were not computed.
      error: the exception that was raised, or None.
      given: the model outputs that it was raised for, in words; empty if it was raised before any were generated.
      late: whether time ran out.
      others: the metrics for the other model outputs.
      targets: the postprocessed targets of all examples; None if no metric function was given any.
    """

    values: Mapping[str, Any] | None = None
    error: Exception | None = None
    given: str = ""
    late: bool = False
    others: Sequence[Mapping[str, Any]] = ()
    targets: Sequence[Any] | None = None


class _Unconverted(seqio.PassThroughFeatureConverter):
    """Replaces the model's converter: generated outputs do not depend on the model's inputs."""

    TASK_FEATURES: Mapping[str, Any] = {}
    pack = False

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """Leaves out what is not a tensor, such as None, because no model gets it."""
        del task_feature_lengths
        names = [name for name, spec in ds.element_spec.items() if hasattr(spec, "shape")]
        return ds.map(lambda example: {name: example[name] for name in names})


def call(
    task: seqio.Task, role: DataRole, examples: Sequence[Mapping[str, Any]], loggers: Sequence[Any], seconds: float
) -> MetricCall:
    """Computes and writes a task's metrics for several generated outputs, until one makes it raise.

    Args:
      task: a registered task whose targets are token ids.
      role: the dataset that the task is part of.
      examples: the examples that the evaluator reads instead of the split.
      loggers: classes of SeqIO's loggers; their output is thrown away.
      seconds: the time limit.
    """
    examples = _trimmed(examples, task, role)
    dataset = dataset_of(examples)
    with tempfile.TemporaryDirectory(prefix="t5x-harness-metrics-", ignore_cleanup_errors=True) as folder:
        calls = functools.partial(_calls, task, role, examples, loggers, folder)
        task.get_dataset = lambda *_, **__: dataset  # no matter what the evaluator asks it for
        try:
            reading = read_within(calls, keep=_MOST_OUTPUTS, count=0, seconds=seconds)
        finally:
            del task.get_dataset
    if not reading.kept:
        return MetricCall(late=reading.late)
    first, last = reading.kept[0], reading.kept[-1]
    others = [each.values for each in reading.kept[1:] if each.values is not None]
    late = reading.late and last.error is None
    return MetricCall(first.values, last.error, last.given, late, others, first.targets)


def _calls(
    task: seqio.Task, role: DataRole, examples: Sequence[Mapping[str, Any]], loggers: Sequence[Any], folder: str
) -> Iterator[MetricCall]:
    """Yields the outcome for each generated output, and ends after one that raises."""
    seen: list[Sequence[Any] | None] = []

    def targets_seen(output_dir: str) -> Callable[..., None]:
        del output_dir  # SeqIO calls this in the place of a logger's class
        return lambda **given: seen.append(given["targets"])

    try:
        evaluator = seqio.Evaluator(
            mixture_or_task_name=task.name,
            feature_converter=_Unconverted(),
            eval_split=role.dataset.split,
            use_cached=role.dataset.use_cached,
            seed=role.dataset.seed,
            sequence_length=role.dataset.task_feature_lengths,
            logger_cls=[*loggers, targets_seen],
            log_dir=folder,
            async_compute_metrics=False,
        )
        only_scores = {metric.model_output_type for metric in task.metric_objs} == _ONLY_SCORES
    except Exception as error:
        yield MetricCall(error=error)
        return
    targets = [example["targets"] for example in examples]
    random = np.random.default_rng(0)
    for words, tokens in generated_predictions(targets, task.output_features["targets"].vocabulary):
        given = "generated scores" if only_scores else words
        predictions = list(enumerate(tokens))
        scores = list(-random.exponential(10.0, len(targets)).astype(np.float32))  # log-likelihoods
        try:
            metrics, _ = evaluator.evaluate(
                compute_metrics=True,
                step=0,
                predict_fn=lambda _, made=predictions: made,
                score_fn=lambda _, made=scores: list(enumerate(made)),
                predict_with_aux_fn=lambda _, made=predictions, of=scores: (made, {"scores": list(of)}),
            )
            yield MetricCall(metrics.result()[task.name], given=given, targets=seen[-1])
        except Exception as error:  # the user's functions may raise anything
            yield MetricCall(error=error, given=given)
            return


def _trimmed(examples: Sequence[Mapping[str, Any]], task: seqio.Task, role: DataRole) -> list[dict[str, Any]]:
    """Cuts the features of examples to their lengths, as SeqIO does for the evaluator."""
    lengths = role.dataset.task_feature_lengths or {}
    cuts = {n: length for n, length in lengths.items() if n in task.output_features and isinstance(length, int)}
    return [
        {name: value[: cuts.get(name)] if np.ndim(value) else value for name, value in example.items()}
        for example in examples
    ]


def generated_predictions(
    targets: Sequence[np.ndarray[Any, Any]], vocabulary: seqio.Vocabulary
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yields possible predictions of a model, from the best to those of an untrained model.

    Each is a description that fits after the word ``given``, and int32 ids of shape [examples, length].

    Args:
      targets: ids of the targets, of shape [length] each.
      vocabulary: the vocabulary of the targets.
    """
    random, number = np.random.default_rng(0), len(targets)
    own = _padded(targets)
    yield "the targets themselves as predictions", own
    length = max(own.shape[1], _LENGTH)
    ids = random.integers(0, max(vocabulary.vocab_size or 2, 2), (number, length), dtype=np.int32)
    yield "random ids as predictions, as an untrained model gives them", ids
    empty = np.full(1, getattr(vocabulary, "eos_id", None) or 0)
    yield "an empty prediction for the first example", _padded([empty, *targets[1:]])
    yield "an empty prediction for every example", _padded([empty] * number)
    unknown = getattr(vocabulary, "unk_id", None)
    if unknown is not None and unknown >= 0:
        yield "a prediction of unknown tokens for the first example", _padded([np.full(4, unknown), *targets[1:]])


def _padded(rows: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Makes one array of rows of ids; it has at least one column."""
    padded = np.zeros((len(rows), max(1, *map(len, rows))), np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


_METHODS = {
    seqio.metrics.ModelOutputType.PREDICTION: "predict_batch",
    seqio.metrics.ModelOutputType.PREDICTION_WITH_AUX: "predict_batch_with_aux",
    seqio.metrics.ModelOutputType.SCORE: "score_batch",
}
"""The method of T5X's models that computes each kind of output that a metric can ask for."""


def call_metrics(run: Resolved, report: StageReport) -> None:
    """Calls the metrics of every sampled task whose metrics the run computes.

    Args:
      run: the resolved config with the sampled examples.
      report: receives the failures, the values for perfect predictions, and the metrics that were not called.
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
    """Calls a task's metrics on all sampled examples, or on fewer if the last ones may be an incomplete group."""
    if seconds <= 0:
        return MetricCall(late=True)
    until = time.monotonic() + seconds
    called = call(sample.task, role, sample.examples, loggers, seconds)
    if called.error is None or sample.is_all or failure_of(called.error)[0] != "SEQ20":
        return called
    number = len(sample.examples)
    for fewer in sorted({number // size * size for size in _GROUPS} - {0, number}, reverse=True):
        left = until - time.monotonic()
        again = call(sample.task, role, sample.examples[:fewer], loggers, left) if left > 0 else MetricCall(late=True)
        if again.error is None:
            return again
    return called


def _add_outcome(called: MetricCall, run: Resolved, role: DataRole, sample: Sample, report: StageReport) -> str | None:
    """Adds the outcome to the report; returns the reason if it proves nothing."""
    if called.values:
        shown = ", ".join(f"{name} {shown_value(value)}" for name, value in called.values.items())
        report.fact(f"{sample.task.name} metrics", f"{shown} with the targets as predictions")
    bound_at = run.config.location(role.key(run.config, "mixture_or_task_name"))
    if called.values is not None and called.error is None and not called.late:
        place = run.registrations.place(sample.task.name)
        report.add(silent_mistakes((called.values, *called.others), called.targets, sample, place), bound_at)
    if called.error is not None:
        log_traceback(called.error)
        if is_out_of_reach(called.error):
            return "they need the network"
        if not called.given and (wrong := wrong_metric(sample.task)) is not None:
            message, fix = wrong
            report.find("USR01", message, location=run.registrations.place(sample.task.name) or bound_at, fix=fix)
            return None
        if not called.given and failure_of(called.error)[0] != "SEQ23":
            return f"SeqIO's evaluator cannot be built for the sampled examples: {one_line(root_cause(called.error))}"
        report.add([failure_in_call(called.error, called.given, run, role, sample)], bound_at)
    return "they took too long" if called.late else None


def _loggers(run: Resolved, report: StageReport) -> list[Any]:
    """Returns SeqIO's own loggers among those that the config gives the evaluator; others may write anywhere."""
    bound = copy.deepcopy(run.config.value(run.config.owner(run.config.find("logger_cls", "Evaluator"))))
    own = [logger for logger in bound or () if _is(logger, *_LOGGERS)]
    for logger in bound or ():
        if logger not in own:
            report.not_checked.append(f"whether {getattr(logger, '__name__', logger)} can write the metrics")
    return own


def _is(given: Any, *classes: type) -> bool:
    """Tells whether an object is one of these classes, or the subclass of the same name that gin derives from one."""
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
    except (TypeError, ValueError):  # the evaluator raises it too, and is judged by that
        return
    yield from (_METHODS[kind] for kind in sorted(asked) if kind in _METHODS)
