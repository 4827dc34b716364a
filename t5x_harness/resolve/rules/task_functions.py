"""SEQ06, SEQ20 to SEQ24, SEQ37, SEQ40, SEQ43, SEQ44, INF12: functions that raise, or whose results are of no use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import Found, Rule, evaluating, task_files, training
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_REGISTERED = "seqio.TaskRegistry.add("
_NESTED = "lambda d: d.map(lambda e: {**e, 'targets': e['targets'][None]})"
_EXACT = "return {'exact': float(targets == predictions)}"
_METRICS = "    metric_fns=[exact],\n"
_WRONG_TYPE = "return {'exact': targets['text'] == predictions['text']}"
_LABEL = "lambda text, **_: {{'{}': 0, '{}': 1}}.get(text, -1)"
_SPLIT = "utils.DatasetConfig.split = 'validation'"


@Rule(
    "SEQ06",
    "output feature that the preprocessors do not make",
    why=(
        "Columns of the source are called otherwise than the features of the task: SeqIO raises on the first example. "
        "A feature with `required=False` may be left out, and the model's feature converter then refuses the data."
    ),
    bad=training(files=task_files("'inputs': ['one two'", "'source': ['one two'"), at=_REGISTERED),
    good=training(),
)
def feature_left_out(run: Resolved) -> Iterator[Found]:
    """Finds each feature that a task may leave out, and that the model takes all the same."""
    from t5x_harness.resolve.datasets import demanded_features

    said = set()
    for role, sample in run.sampled():
        taken = demanded_features(run.model, role)
        missing = ", ".join(sorted(taken - sample.features)) if sample.features else ""
        if missing and sample.task.name not in said:
            said.add(sample.task.name)
            left = ", ".join(sorted(sample.features))
            yield Found(
                f"task {sample.task.name} leaves no feature {missing}, and the model ({type(run.model).__name__}) "
                f"takes it; the task leaves: {left}",
                None,
                f"let a preprocessor make {missing}, which may be empty text, or use a model that does not take it",
                location=run.registrations.place(sample.task.name),
            )


SEQ37 = Rule(
    "SEQ37",
    "feature of another type than the task declares",
    name="FeatureType",
    why=(
        "A task without a tokenizer hands on text, where T5X needs int32 ids; a Feature may declare another type than "
        "its preprocessors make. SeqIO raises when the job reads it."
    ),
    bad=training(
        files=task_files("[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]", "[]"), at=_REGISTERED
    ),
    good=training(),
)


SEQ40 = Rule(
    "SEQ40",
    "feature of another rank than the task declares",
    name="FeatureRank",
    why="T5X's models take sequences of ids, which have rank 1; SeqIO raises when the job reads the first example.",
    bad=training(
        files=task_files("seqio.preprocessors.append_eos]", f"seqio.preprocessors.append_eos, {_NESTED}]"),
        at=_REGISTERED,
    ),
    good=training(),
)


_INFER_EVAL = (
    "train_script.train.infer_eval_dataset_cfg = @infer_eval/utils.DatasetConfig()",
    "infer_eval/utils.DatasetConfig:",
    "  mixture_or_task_name = %MIXTURE_OR_TASK_NAME",
    "  task_feature_lengths = %TASK_FEATURE_LENGTHS",
    "  split = 'validation'",
    "  batch_size = 32",
    "  shuffle = False",
    "  seed = 42",
)


SEQ20 = Rule(
    "SEQ20",
    "metric function that raises",
    name="MetricRaises",
    why=(
        "SeqIO calls metric functions when all predictions are made: the evaluation ends with `Failed to evaluate "
        "task`, its decoding spent. They are called here with predictions generated for the sampled examples."
    ),
    bad=evaluating(_SPLIT, files=task_files(_EXACT, _WRONG_TYPE), at="    return {'exact': targets['text']"),
    good=evaluating(_SPLIT),
)


SEQ21 = Rule(
    "SEQ21",
    "metric function that raises beside training",
    name="LateMetricRaises",
    why=(
        "With `concurrent_metrics`, T5X's default, metric functions run in a thread while training goes on; what they "
        "raise ends the job at the next evaluation, one eval period later."
    ),
    bad=training(*_INFER_EVAL, files=task_files(_EXACT, _WRONG_TYPE), at="    return {'exact': targets['text']"),
    good=training(*_INFER_EVAL),
)


SEQ22 = Rule(
    "SEQ22",
    "two metric functions with the same key",
    name="DuplicateMetricKey",
    why="SeqIO raises `Duplicate metric key` after it has computed both, at the end of the evaluation.",
    bad=evaluating(
        _SPLIT, files=task_files("metric_fns=[exact]", "metric_fns=[exact, exact]"), at="seqio.TaskRegistry.add("
    ),
    good=evaluating(_SPLIT),
)


SEQ23 = Rule(
    "SEQ23",
    "metric function with other arguments than SeqIO passes",
    name="MetricArguments",
    why=(
        "SeqIO tells by the names and the order of a metric function's positional arguments what to call it with; it "
        "looks at them when the evaluator is built, after the job has started."
    ),
    bad=evaluating(
        _SPLIT,
        files=task_files("def exact(targets, predictions)", "def exact(predictions, targets)"),
        at="def exact(predictions, targets)",
    ),
    good=evaluating(_SPLIT),
)


INF12 = Rule(
    "INF12",
    "metric that is not a number",
    name="UnwritableMetric",
    why=(
        "The loggers that the config binds write the metrics when all of them are computed. TensorBoard takes numbers "
        "only, so that a text or an array ends the evaluation, its decoding spent. NaN is a gap in the chart, and an "
        "empty dict is not there at all: both are warnings."
    ),
    bad=evaluating(
        _SPLIT,
        files=task_files(_EXACT, "return {'exact': 'all' if targets == predictions else 'some'}"),
        at="def exact",
    ),
    good=evaluating(_SPLIT),
)


SEQ43 = Rule(
    "SEQ43",
    "metric that is the same for any predictions",
    name="BlindMetric",
    severity=Severity.WARNING,
    why=(
        "A metric that compares the targets with themselves, or texts with numbers, gives one value before and after "
        "training. It is computed here for the targets themselves as predictions, for random ids and for empty ones. "
        "If only some metric functions are blind, it is a note, and one that only counts is not reported."
    ),
    bad=evaluating(_SPLIT, files=task_files(_EXACT, "return {'exact': float(targets == targets)}"), at="def exact"),
    good=evaluating(_SPLIT),
)


SEQ44 = Rule(
    "SEQ44",
    "targets that the postprocess function does not know",
    name="UnknownTargets",
    severity=Severity.WARNING,
    why=(
        "A postprocess function that makes the same of every target, such as its default of -1 because the labels are "
        "written differently in the data, leaves a metric nothing to compare: untrained models are right, too."
    ),
    bad=evaluating(
        _SPLIT,
        files=task_files(_METRICS, f"{_METRICS}    postprocess_fn={_LABEL.format('one two', 'three')},\n"),
        at="    postprocess_fn=",
    ),
    good=evaluating(_SPLIT, files=task_files(_METRICS, f"{_METRICS}    postprocess_fn={_LABEL.format('1 2', '3')},\n")),
)


SEQ24 = Rule(
    "SEQ24",
    "postprocess function that raises",
    name="PostprocessRaises",
    why=(
        "SeqIO calls it with the text of every target and every prediction, and with `example` and `is_target` by "
        "name, when all predictions are made. An untrained model predicts any text, an empty one, too; one text that "
        "makes it raise ends the evaluation."
    ),
    bad=evaluating(
        _SPLIT,
        files=task_files(
            _METRICS, f"{_METRICS}    postprocess_fn=lambda text, **_: [int(number) for number in text.split()],\n"
        ),
        at="    postprocess_fn=",
    ),
    good=evaluating(
        _SPLIT, files=task_files(_METRICS, f"{_METRICS}    postprocess_fn=lambda text, **_: text.split(),\n")
    ),
)
