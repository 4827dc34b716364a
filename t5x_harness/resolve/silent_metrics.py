"""Finds metrics that raise nothing and say nothing: NaN, none at all, or the same for any predictions and targets."""

import difflib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio

from t5x_harness.resolve.metric_failures import definition_place, function_with
from t5x_harness.resolve.sameness import target_text
from t5x_harness.resolve.samples import Sample
from t5x_harness.spec import Finding, Location, Severity, Stage
from t5x_harness.upstream.seqio import metric_functions

_LABELS = ("label_classes", "labels", "classes", "choices", "label_names", "class_names")
"""The keyword arguments of postprocess functions that list a task's labels."""

_UNKNOWN = ("-1", "-1.0", "None", "''", "'unknown'", "'<unk>'", "nan")
"""Values, as Python shows them, that postprocess functions give for a text that they do not know."""

_FEW = 16
"""The number of examples below which a metric of generated scores may be the same by chance."""

_COMPARE = "compare the predictions with the targets, both in the form that postprocess_fn gives them"
_MOST_SHOWN = 3
_NUMBERS = (int, float, np.number, np.bool_)

Values = Mapping[str, Any]


def silent_mistakes(
    outputs: Sequence[Values], targets: Sequence[Any] | None, sample: Sample, place: Location | None
) -> Iterator[Finding]:
    """Yields what a task's metrics do not show, although none of them raises.

    Args:
      outputs: the metrics by name for several model outputs, the best ones first.
      targets: the postprocessed targets; None if no metric function was given any.
      sample: the task and the examples that were evaluated.
      place: the line that registers the task.
    """
    task = sample.task
    functions = metric_functions(task)

    def finding(code: str, severity: Severity, message: str, fix: str, part: Callable[..., Any] | None) -> Finding:
        return Finding(code, severity, Stage.RESOLVE, message, definition_place(part) or place, fix)

    if targets is not None and (unknown := _unknown_targets(sample, [repr(target) for target in targets])):
        severity, message, fix = unknown
        yield finding("SEQ44", severity, message, fix, _innermost(task.postprocessor))
        if severity is Severity.WARNING:
            return  # metrics of such targets say nothing, which is its consequence
    only = functions[0] if len(functions) == 1 else None
    differ = len({repr(t) for t in (sample.values("targets") if targets is None else targets)}) > 1
    if others := [name for name, value in outputs[0].items() if not _is_for_charts(value)]:
        what = " and ".join(f"{name} a {type(outputs[0][name]).__name__}" for name in others)
        message = f"among the metrics of task {task.name} is {what}: no chart shows it, and TensorBoard would refuse it"
        fix = "return numbers, or the seqio.metrics value that is meant: Text, Image, Audio, Histogram"
        yield finding("INF12", Severity.NOTE, message, fix, function_with(others[0], task) or only)
    if not any(outputs):
        message = f"the metrics of task {task.name} are an empty dict: its evaluation reports nothing"
        yield finding("INF12", Severity.WARNING, message, "return names and values from the metric function", only)
    elif undefined := [name for name, value in outputs[0].items() if _is_undefined(value)]:
        always = all(_is_undefined(values.get(name)) for values in outputs for name in undefined)
        message = f"{', '.join(undefined)} of task {task.name} is {float(_number(outputs[0][undefined[0]]))} for the "
        message += f"targets themselves as predictions{' and for all others' if always and len(outputs) > 1 else ''}"
        # A correlation with targets that are all alike is undefined, and may be fine in the whole split.
        severity = Severity.WARNING if always and differ else Severity.NOTE
        fix = "look for a division by zero in the metric function"
        yield finding("INF12", severity, message, fix, function_with(undefined[0], task) or only)
    elif differ and len(outputs) > 1 and _is_always_the_same(outputs):
        scored = all(m.model_output_type == seqio.metrics.ModelOutputType.SCORE for m in task.metric_objs)
        if scored and len(sample.examples) < _FEW:
            return
        shown = ", ".join(f"{name} {shown_value(value)}" for name, value in outputs[0].items())
        best = "any scores" if scored else "the targets themselves as predictions, for random ids and for empty ones"
        message = f"the metrics of task {task.name} are the same for {best}: {shown}"
        yield finding("SEQ43", Severity.WARNING, message, _COMPARE, only)
    elif differ and len(outputs) > 1:
        for function, names in _blind_functions(outputs, task):
            shown = ", ".join(f"{name} {shown_value(outputs[0][name])}" for name in names)
            message = f"of the metrics of task {task.name} these do not depend on the predictions: {shown}"
            # They may be meant to describe the targets, or count what no sampled prediction has.
            yield finding("SEQ43", Severity.NOTE, message, _COMPARE, function)


def _unknown_targets(sample: Sample, made: Sequence[str]) -> tuple[Severity, str, str] | None:
    """Returns what the postprocess function does not know of the targets: how bad it is, a message, and the fix."""
    task = sample.task
    vocabulary = task.output_features["targets"].vocabulary
    texts = [target_text(example, "targets", vocabulary) for example in sample.examples[: len(made)]]
    labels, fix = _labels(task.postprocessor), "let the postprocess function know the targets' own texts"
    unknown = sorted({text for text, value in zip(texts, made, strict=True) if value in _UNKNOWN})
    if labels is not None:
        unknown = [text for text in unknown if text not in labels]
        close = difflib.get_close_matches(unknown[0], labels, n=1, cutoff=0.6) if unknown else []
        fix = f"write the labels as the targets do; they are {_listed(labels)}"
        fix += f", and the closest to {unknown[0]!r} is {close[0]!r}" if close else ""
    of_which = f"of the {len(texts)} sampled targets of task {task.name} {sample.split}"
    if len(set(made)) == 1 and len(set(texts)) > 1 and task.postprocessor is not None:
        message = f"postprocess_fn makes {made[0]} of each {of_which}, such as {_listed(list(dict.fromkeys(texts)))}"
        return Severity.WARNING if made[0] in _UNKNOWN else Severity.NOTE, message, fix
    if labels is not None and unknown:
        number = sum(text in unknown for text in texts)
        message = f"postprocess_fn does not know {number} {of_which}: {_listed(unknown)}"
        return Severity.NOTE, message, fix
    never = [label for label in labels or () if label not in texts]
    if never and sample.is_all:
        message = f"none {of_which} is {_listed(never)}, which postprocess_fn lists as labels"
        return Severity.NOTE, message, "correct the labels, or mean it"
    return None


def _labels(function: Any) -> Sequence[str] | None:
    """Returns the labels that a postprocess function was given by a partial; None if it was given none."""
    while isinstance(function, functools.partial):
        for name in _LABELS:
            found = function.keywords.get(name)
            if isinstance(found, list | tuple) and found and all(isinstance(label, str) for label in found):
                return found
        function = function.func
    return None


def _innermost(function: Any) -> Any:
    return function.func if isinstance(function, functools.partial) else function


def _listed(texts: Sequence[str]) -> str:
    left = len(texts) - _MOST_SHOWN
    return ", ".join(map(repr, texts[:_MOST_SHOWN])) + (f" and {left} more" if left > 0 else "")


def _number(value: Any) -> Any:
    return getattr(value, "value", value)


def _is_for_charts(value: Any) -> bool:
    is_number = np.size(value) == 1 and np.asarray(value).dtype.kind in "biuf"
    return is_number or isinstance(value, seqio.metrics.MetricValue)


def _is_undefined(value: Any) -> bool:
    number = _number(value)
    return isinstance(number, float | np.floating) and not math.isfinite(number)


def _is_always_the_same(outputs: Sequence[Values]) -> bool:
    """Tells whether there are numbers among the metrics, and all of them are the same for all outputs."""
    numbers = [_numbers(values) for values in outputs]
    return bool(numbers[0]) and all(each == numbers[0] for each in numbers)


def _blind_functions(outputs: Sequence[Values], task: seqio.Task) -> Iterator[tuple[Callable[..., Any], Sequence[str]]]:
    """Yields each metric function all of whose numbers are the same for all outputs, with their names.

    One that only counts, such as examples, is left out.
    """
    numbers, *others = map(_numbers, outputs)
    by_function: dict[Callable[..., Any], list[str]] = {}
    for name in numbers:
        function = function_with(name, task)
        if function is None:
            return  # it may be of any of them
        by_function.setdefault(function, []).append(name)
    for function, names in by_function.items():
        counts = all(isinstance(numbers[name], int | np.integer) for name in names)
        if not counts and all(other.get(name) == numbers[name] for other in others for name in names):
            yield function, names


def _numbers(values: Values) -> Values:
    return {name: number for name, value in values.items() if isinstance(number := _number(value), _NUMBERS)}


def shown_value(value: Any) -> str:
    """Returns the value of a metric as text: a number, or the type of anything else."""
    number = _number(value)
    return f"{number:.4g}" if isinstance(number, _NUMBERS) else f"a {type(value).__name__}"
