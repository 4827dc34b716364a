"""Functions of the user's own take what T5X passes them, or the plan says that they do not."""

from collections.abc import Callable

import pytest

from t5x_harness.findings.rule import inferred
from t5x_harness.spec import Outcome, StageResult

Plan = Callable[..., StageResult]

TRAINER = """\
from t5x import trainer


class Trainer(trainer.Trainer):
    def __init__(self, model, train_state, partitioner, learning_rate_fn, num_microbatches=None):
        super().__init__(model, train_state, partitioner, learning_rate_fn, num_microbatches)
"""
BOUND_TRAINER = ("import mine", "train_script.train.trainer_cls = @mine.Trainer")
BOUND_SUMMARY = ("import mine", "train_script.train.summarize_config_fn = @mine.f")
ACTION = ("import mine", "train_script.train.actions = {'TRAIN': [@mine.Stop()]}")
STOP = """\
from t5x import trainer


class Stop(trainer.BaseAction):
    def run(self, train_state, metrics):
        return False
"""
LOGGER = ("import mine", "import seqio", "seqio.Evaluator.logger_cls = [@mine.Log]")
LOG = """\
import seqio


class Log(seqio.Logger):
    def __init__(self, folder):
        super().__init__(folder)

    def __call__(self, *arguments):
        pass
"""
SAVING = ("import mine", "utils.SaveCheckpointConfig.state_transformation_fns = [@mine.f]")


@pytest.mark.parametrize(
    ("lines", "text", "line", "argument"),
    [
        (BOUND_TRAINER, TRAINER, 5, "train_state_axes"),
        (BOUND_SUMMARY, "def f(model_dir, writer):\n    pass\n", 1, "summary_writer"),
        (ACTION, STOP, 5, "metrics_by_task"),
        (ACTION, STOP.replace("run(self, train_state, metrics)", "stop(self)"), 4, "Stop"),
        (LOGGER, LOG, 5, "output_dir"),
        (SAVING, "def f(state_dict):\n    return state_dict\n", 1, "parameter_infos"),
    ],
)
def test_a_function_that_t5x_cannot_call(
    plan: Plan, lines: tuple[str, ...], text: str, line: int, argument: str
) -> None:
    (error,) = plan(*lines, modules={"mine": text}).errors
    assert (error.code, str(error.location)) == ("USR01", f"mine.py:{line}")
    assert argument in str(error.fix)


def test_a_class_in_place_of_an_action(plan: Plan) -> None:
    lines = (
        "from t5x import trainer",
        "trainer.TerminateOnNanAction.task = 'counting'",
        "train_script.train.actions = {'TRAIN_EVAL': [@trainer.TerminateOnNanAction]}",
    )
    (error,) = plan(*lines).errors
    assert (error.code, error.fix) == ("GIN20", "write @TerminateOnNanAction()")
    assert error.location is not None


def test_a_writer_of_predictions_that_takes_too_little(plan: Plan) -> None:
    paths = "INFER_OUTPUT_DIR = '/x'", "CHECKPOINT_PATH = 'gs://bucket/t5/checkpoint_1000000'"
    lines = "utils.DatasetConfig.split = 'validation'", "import mine", "infer_script.infer.write_fn = @mine.f"
    (error,) = plan(gin=inferred(*paths, *lines), modules={"mine": "def f(path, inferences):\n    pass\n"}).errors
    assert (error.code, str(error.location)) == ("USR01", "mine.py:1")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (BOUND_SUMMARY, "def f(folder, writer, step, more=None):\n    pass\n"),
        (BOUND_SUMMARY, "def f(*arguments):\n    pass\n"),
        (BOUND_TRAINER, TRAINER.replace("(self, model", "(self, *, model").replace("=None)", "=None, **more)")),
        (ACTION, STOP.replace("metrics)", "metrics_by_task, **more)")),
        (LOGGER, LOG.replace("self, folder", "self, output_dir").replace("(folder)", "(output_dir)")),
        (SAVING, "import functools\n\nf = functools.partial(lambda a, b, c: (b, c), 1)\n"),
    ],
)
def test_a_function_that_takes_it_in_other_words(plan: Plan, lines: tuple[str, ...], text: str) -> None:
    result = plan(*lines, modules={"mine": text})
    assert result.outcome is Outcome.PASSED, result.findings


def test_an_object_that_cannot_be_called(plan: Plan) -> None:
    line = "train_script.train.summarize_config_fn = @seqio.ByteVocabulary()"
    (error,) = plan(line).errors
    assert (error.code, error.binding) == ("GIN37", "train.summarize_config_fn")
    assert error.message == "train.summarize_config_fn is an object of ByteVocabulary, and T5X calls it"
