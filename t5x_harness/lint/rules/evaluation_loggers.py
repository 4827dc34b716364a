"""AUX03: evaluations whose results nobody sees."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.values import Reference
from t5x_harness.lint.configured import ConfiguredObject, ParameterValue, run_function
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Mode, Severity

_EVALUATOR = "seqio.Evaluator"
_TENSORBOARD = ("seqio.TensorBoardLogger", "seqio.TensorBoardLoggerV1")
_KNOWN = (*_TENSORBOARD, "seqio.PyLoggingLogger", "seqio.JSONLogger")
_HEAD = examples.head("eval", "import seqio")


def _evaluation(context: Context) -> tuple[ConfiguredObject, ParameterValue] | None:
    """Returns SeqIO's evaluator and the dataset that it evaluates; None if there is none, or another class."""
    run = run_function(context, Mode.TRAIN, Mode.EVAL)
    dataset = run.parameter("infer_eval_dataset_cfg" if context.program.mode is Mode.TRAIN else "dataset_cfg")
    given = run.parameter("inference_evaluator_cls")
    evaluator = (
        ConfiguredObject(context, _EVALUATOR) if given is None else run.built("inference_evaluator_cls", _EVALUATOR)
    )
    if dataset is None or not isinstance(dataset.value, Reference) or not evaluator:
        return None
    return evaluator, dataset


AUX03 = Mistake(
    "AUX03",
    "EvaluationLoggers",
    "evaluation that does not write to TensorBoard",
    why=(
        "SeqIO's evaluator writes its metrics through `logger_cls` and nowhere else, and by default that is empty. "
        "T5X's finetune.gin and eval.gin name three loggers; pretrain.gin and many own files for evaluation name none."
    ),
    bad=Example(_HEAD + "seqio.Evaluator.logger_cls = [@seqio.JSONLogger]\n", at="seqio.Evaluator.logger_cls"),
    good=Example(_HEAD + "seqio.Evaluator.logger_cls = [@seqio.JSONLogger, @seqio.TensorBoardLogger]\n"),
)


@finds(AUX03)
def evaluation_loggers(context: Context) -> Iterator[Found]:
    """Finds an evaluator without loggers, a warning, or without one for TensorBoard, a note."""
    found = _evaluation(context)
    if found is None:
        return
    evaluator, dataset = found
    loggers = evaluator.parameter("logger_cls")
    if loggers is None or loggers.value in ([], ()):
        yield Found(
            f"{dataset.binding} is evaluated, and seqio.Evaluator.logger_cls is empty: the metrics are written nowhere",
            dataset.at if loggers is None else loggers.at,
            "bind seqio.Evaluator.logger_cls = [@seqio.PyLoggingLogger, @seqio.TensorBoardLogger, @seqio.JSONLogger]",
            severity=Severity.WARNING,
        )
    elif isinstance(loggers.value, (list, tuple)):
        names = [logger.target for logger in loggers.value if isinstance(logger, Reference)]
        known = len(names) == len(loggers.value) and set(names) <= set(_KNOWN)
        if known and not set(names) & set(_TENSORBOARD):
            yield Found(
                f"{loggers.at} has no logger for TensorBoard: the metrics do not appear there",
                loggers.at,
                "add @seqio.TensorBoardLogger",
                severity=Severity.NOTE,
            )
