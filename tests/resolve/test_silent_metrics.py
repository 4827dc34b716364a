"""Metrics that raise nothing and say nothing, and targets that the postprocess function does not know."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import seqio
from tasks_in_text import Resolve, module

from t5x_harness.findings.rule import evaluated
from t5x_harness.resolve.samples import Sample
from t5x_harness.resolve.silent_metrics import silent_mistakes
from t5x_harness.spec import Finding, Location, Severity

EVALUATED = evaluated("utils.DatasetConfig.split = 'validation'")
EXACT = "return {'exact': float(targets == predictions)}"
REGISTERED = Location("tasks.py", 7)
NAN = float("nan")


def exact(targets: Any, predictions: Any) -> Mapping[str, Any]:
    """Has the name of the metric in these tests among its constants."""
    return {"exact": targets == predictions}


def f1(targets: Any, predictions: Any) -> Mapping[str, Any]:
    return {"f1": targets == predictions}


def counted(targets: Any, predictions: Any) -> Mapping[str, Any]:
    return {"examples": len(targets) + len(predictions)}


def of_scores(targets: Any, scores: Any) -> Mapping[str, Any]:
    return {"exact": len(targets) + len(scores)}


def label(text: str, label_classes: Sequence[str], default: int = -1, **_: Any) -> int:
    return label_classes.index(text) if text in label_classes else default


def sample(*texts: str, metric: Any = exact, postprocess: Any = None, whole: bool = True) -> Sample:
    feature = seqio.Feature(seqio.ByteVocabulary())
    source = seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: None, splits=("validation",))
    features = {"targets": feature}
    task = seqio.Task(
        "rated",
        source,
        features,
        [],
        postprocess_fn=postprocess,
        metric_fns=metric if isinstance(metric, list) else [metric],
    )
    ids = [np.array(feature.vocabulary.encode(text), np.int32) for text in texts]
    examples = tuple({"targets": i, "targets_pretokenized": t.encode()} for i, t in zip(ids, texts, strict=True))
    return Sample(task, "validation", examples, whole=True, count=len(texts), ended=whole)


def mistakes(given: Sample, *outputs: Mapping[str, Any]) -> list[Finding]:
    """Returns the findings about metrics for several outputs, and targets as the task postprocesses them."""
    made = given.task.postprocessor or (lambda text: text)
    targets = [made(example["targets_pretokenized"].decode()) for example in given.examples]
    return list(silent_mistakes(outputs, targets, given, REGISTERED))


def the_one(given: Sample, *outputs: Mapping[str, Any]) -> Finding:
    (finding,) = mistakes(given, *outputs)
    return finding


def test_a_metric_that_compares_targets_with_themselves(resolve: Resolve) -> None:
    files = module((EXACT, "return {'exact': float(targets == targets), 'number': len(targets)}"))
    result = resolve(EVALUATED, files)
    (warning,) = (f for f in result.findings if f.code == "SEQ43")
    assert warning.severity is Severity.WARNING
    assert warning.message == (
        "the metrics of task counting are the same for the targets themselves as predictions, for random ids and for "
        "empty ones: exact 1, number 2"
    )
    line = next(n for n, text in enumerate(files["counting.py"].splitlines(), 1) if text.startswith("def exact"))
    assert warning.location == Location("counting.py", line)
    assert warning.fix == "compare the predictions with the targets, both in the form that postprocess_fn gives them"


def test_a_comment_at_the_binding_of_the_task_silences_its_metrics(resolve: Resolve) -> None:
    name = "MIXTURE_OR_TASK_NAME = 'counting'"
    gin = EVALUATED.replace(name, f"# t5x-harness: ignore[SEQ43]\n{name}")
    result = resolve(gin, module((EXACT, "return {'exact': float(targets == targets)}")))
    assert [f.code for f in result.silenced] == ["SEQ43"]


def test_a_blind_metric_beside_one_that_is_not_is_a_note_and_one_that_counts_is_nothing() -> None:
    outputs = [{"exact": 1.0, "f1": right, "examples": 2} for right in (1.0, 0.5, 0.5)]
    given = sample("a", "b", metric=[exact, f1, counted])
    note = the_one(given, *outputs)
    assert (note.code, note.severity) == ("SEQ43", Severity.NOTE)
    assert note.message == "of the metrics of task rated these do not depend on the predictions: exact 1"
    assert note.location is not None
    assert note.location.line == exact.__code__.co_firstlineno
    assert not mistakes(given, {**outputs[0], "exact": 0.5}, *outputs[1:])


def test_a_metric_of_scores_that_ignores_them(resolve: Resolve) -> None:
    scored = ("(targets, predictions)", "(targets, scores)")
    many = ("['one two', 'three'], 'targets': ['1 2', '3']", "['one', 'two'] * 9, 'targets': ['1', '2'] * 9")
    ignoring = resolve(EVALUATED, module((EXACT, "return {'exact': len(targets)}"), scored, many))
    (warning,) = (f for f in ignoring.findings if f.code == "SEQ43")
    assert "are the same for any scores: exact 18" in warning.message
    reading = resolve(EVALUATED, module((EXACT, "return {'exact': float(scores.mean())}"), scored, many))
    assert not [f for f in reading.findings if f.code == "SEQ43"]


def test_a_metric_that_is_the_same_by_chance_is_not_judged() -> None:
    same = [{"exact": 0.0}] * 4
    assert the_one(sample("a", "b"), *same).code == "SEQ43"
    assert not mistakes(sample("a", "a"), *same), "one class in the sample: no prediction of another one is right"
    assert not mistakes(sample("a", "b"), *same[1:], {"exact": 0.5})
    assert not mistakes(sample("a", "b"), *same[:1]), "there was time for one output only"
    assert not mistakes(sample("a", "b", metric=of_scores), *same), "two groups of choices"
    assert not mistakes(sample("a", "b"), *[{"exact": seqio.metrics.Text("a table")}] * 4)


def test_a_metric_that_is_never_a_number_is_a_warning() -> None:
    warning = the_one(sample("a", "b"), {"exact": NAN, "other": 1.0}, {"exact": np.float32("nan"), "other": 0.0})
    assert (warning.code, warning.severity) == ("INF12", Severity.WARNING)
    assert warning.message == (
        "exact of task rated is nan for the targets themselves as predictions and for all others"
    )
    assert warning.location is not None
    assert warning.location.file.endswith("test_silent_metrics.py")
    note = the_one(sample("a", "b"), {"exact": NAN}, {"exact": 0.5})
    assert note.severity is Severity.NOTE
    assert note.message == "exact of task rated is nan for the targets themselves as predictions"
    assert the_one(sample("a", "a"), {"exact": NAN}, {"exact": NAN}).severity is Severity.NOTE, "a correlation"


def test_metrics_of_nothing_are_a_warning() -> None:
    warning = the_one(sample("a", "b"), {}, {})
    assert (warning.code, warning.severity) == ("INF12", Severity.WARNING)
    assert warning.message == "the metrics of task rated are an empty dict: its evaluation reports nothing"


@pytest.mark.parametrize("value", ["good", np.ones(3), None, {"a": 1.0}], ids=["text", "array", "none", "dict"])
def test_values_that_no_chart_shows_are_a_note(value: Any) -> None:
    """TensorBoard would stop the evaluation at them, and that is an error; SeqIO's JSONLogger writes them."""
    note = the_one(sample("a", "b"), {"exact": value, "other": 1.0}, {"exact": value, "other": 0.0})
    assert (note.code, note.severity) == ("INF12", Severity.NOTE)
    assert note.message == (
        f"among the metrics of task rated is exact a {type(value).__name__}: no chart shows it, and TensorBoard would "
        "refuse it"
    )


@pytest.mark.parametrize("value", [True, 3, np.float32(0.5), np.ones(1), seqio.metrics.Scalar(1), np.bool_(True)])
def test_numbers_of_any_kind_are_shown(value: Any) -> None:
    assert not mistakes(sample("a", "b"), {"exact": value, "other": 1.0}, {"exact": value, "other": 0.0})


def test_targets_that_all_become_the_default() -> None:
    postprocess = functools.partial(label, label_classes=["good", "bad"])
    warning = the_one(sample("Good", "Bad", postprocess=postprocess), *[{"exact": 1.0}] * 4)
    assert (warning.code, warning.severity) == ("SEQ44", Severity.WARNING)
    assert warning.message == (
        "postprocess_fn makes -1 of each of the 2 sampled targets of task rated validation, such as 'Good', 'Bad'"
    )
    assert (
        warning.fix == "write the labels as the targets do; they are 'good', 'bad', and the closest to 'Bad' is 'bad'"
    )
    constant = the_one(sample("a", "b", postprocess=lambda text: 0), {"exact": 1.0}, {"exact": 0.5})
    assert constant.severity is Severity.NOTE
    assert not mistakes(sample("?", "?", postprocess=lambda text: -1), {"exact": 1.0}), "a split without labels"


def test_single_targets_that_no_label_has() -> None:
    postprocess = functools.partial(label, label_classes=["good", "bad"])
    differing = {"exact": 1.0}, {"exact": 0.5}
    note = the_one(sample("good", "bda", "bad", postprocess=postprocess), *differing)
    assert note.severity is Severity.NOTE
    assert note.message == "postprocess_fn does not know 1 of the 3 sampled targets of task rated validation: 'bda'"
    assert (note.fix or "").endswith("the closest to 'bda' is 'bad'")


def test_a_label_that_no_target_has_is_a_note_if_all_were_read() -> None:
    postprocess = functools.partial(label, label_classes=["good", "bad", "ugly"])
    differing = {"exact": 1.0}, {"exact": 0.5}
    note = the_one(sample("good", "bad", postprocess=postprocess), *differing)
    assert note.message == (
        "none of the 2 sampled targets of task rated validation is 'ugly', which postprocess_fn lists as labels"
    )
    assert note.severity is Severity.NOTE
    assert not mistakes(sample("good", "bad", postprocess=postprocess, whole=False), *differing)
