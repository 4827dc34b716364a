"""SEQ42: features that are the same, or empty, in every example."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import Found, Rule, task_files, training
from t5x_harness.spec import Location, Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.samples import Sample

_LONGEST = 80
_STEPS = "preprocessors=[seqio.preprocessors.tokenize"
_FORMATTED = "preprocessors=[\n        lambda d: d.map(lambda e: {{**e, 'inputs': {}}}), seqio.preprocessors.tokenize"


@Rule(
    "SEQ42",
    "feature that is the same, or empty, in every example",
    severity=Severity.WARNING,
    why=(
        "TensorFlow traces the function of `map` once: an f-string of a tensor becomes one text for all examples, such "
        'as `say Tensor("args_0:0", ...)`. The loss falls, because the model learns the targets\' average, and no '
        "prediction depends on its input. Targets without a token give a loss over nothing."
    ),
    bad=training(
        files=task_files(_STEPS, _FORMATTED.format("f\"say {e['inputs']}\"")), at="        lambda d: d.map(lambda e: "
    ),
    good=training(files=task_files(_STEPS, _FORMATTED.format("'say ' + e['inputs']"))),
)
def same_in_every_example(run: Resolved) -> Iterator[Found]:
    """Finds each feature whose sampled values say nothing, once for each task."""
    said = set()
    for role, sample in run.sampled():
        if run.standins.are_tokens_generated(sample.task):
            continue
        for feature in sample.task.output_features:
            read = feature != "targets" or run.config.mode is not Mode.INFER
            if read and (sample.task.name, feature) not in said:
                for found in _found(run, role, sample, feature):
                    said.add((sample.task.name, feature))
                    yield found


def _found(run: Resolved, role: DataRole, sample: Sample, feature: str) -> Iterator[Found]:
    from t5x_harness.resolve.pipeline import Part
    from t5x_harness.resolve.sameness import blank, formatted_tensor, is_same, origin_of

    values = sample.values(feature)
    eos = getattr(sample.task.output_features[feature].vocabulary, "eos_id", None)
    nothing, tensor, same = blank(values, eos), formatted_tensor(sample, feature), is_same(values)
    if not values or not (nothing or tensor or same):
        return
    key = role.key(run.config, "mixture_or_task_name")
    place = run.registrations.place(sample.task.name)
    where = f"in all {len(values)} sampled examples of task {sample.task.name} {sample.split}"
    if tensor:
        step, at = _formatting_step(role, sample)
        message = (
            f"{feature} {'is the same text' if same else 'describes a tensor'} {where}, {_short(tensor)}: {step} makes "
            "text of the tensor itself, as an f-string or str() does, and not of its value"
        )
        fix = "join texts in TensorFlow: tf.strings.join(['...', example['...']])"
        yield Found(message, key, fix, severity=Severity.ERROR if same else None, location=at or place)
    elif nothing and (feature == "targets" or "padding" in nothing):
        # Examples that are only predicted may have no targets.
        if role.name in ("train", "train_eval"):
            no_loss = feature == "targets" and "end" not in nothing
            message = f"{feature} is {nothing} {where}" + (", so that the loss is over no token" if no_loss else "")
            severity = Severity.ERROR if no_loss and sample.is_all and role.name == "train" else None
            fix = f"look at what the preprocessors leave of {feature}"
            yield Found(message, key, fix, severity=severity, location=place)
    elif not role.dataset.use_cached:  # a language model has empty inputs
        origin = None
        with contextlib.suppress(Exception):  # without the rows between the steps, nothing is known
            origin = origin_of(role, sample.task, feature, len(values))
        if origin is None or origin.moved:
            return
        is_what = f"{feature} is {nothing} {where}" if nothing else f"{feature} is the same {where}"
        is_what += "" if nothing else f", {_short(_text(sample, feature))}"
        if origin.step is not None:
            part = Part.of(origin.step)
            # A sorted split may have one class first, and a task may drop its inputs on purpose.
            certain = not nothing and (feature != "targets" or sample.is_all)
            message = f"{is_what}, and the values differ before {part}"
            severity = None if certain else Severity.NOTE
            yield Found(message, key, "keep what differs, or mean it", severity=severity, location=part.place or place)
        elif origin.unused and not nothing:
            message = f"{is_what}, and no feature has the source's {', '.join(origin.unused)}, which differ"
            yield Found(message, key, f"make {feature} of them, or mean it", severity=Severity.NOTE, location=place)


def _formatting_step(role: DataRole, sample: Sample) -> tuple[str, Location | None]:
    """Returns the preprocessor that makes text of a tensor, in words, and its place."""
    from t5x_harness.resolve.pipeline import Part
    from t5x_harness.resolve.sameness import step_with_tensor

    step = None
    with contextlib.suppress(Exception):
        step = step_with_tensor(role, sample.task)
    part = Part.of(step) if step is not None else Part("a preprocessor", None, "a preprocessor")
    return str(part), part.place


def _text(sample: Sample, feature: str) -> str:
    from t5x_harness.resolve.sameness import target_text

    try:
        return target_text(sample.examples[0], feature, sample.task.output_features[feature].vocabulary)
    except Exception:  # a vocabulary of the user may not decode
        return str(sample.values(feature)[0])


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
