"""Resolve calls metrics and postprocessors as an evaluation would, hours before the evaluation could."""

import numpy as np
import pytest
import seqio
from tasks_in_text import INFER_EVAL, READ, Resolve, module

from t5x_harness.findings.rule import TASK, evaluated, inferred, trained
from t5x_harness.resolve.early_metrics import generated_predictions
from t5x_harness.spec import Finding, Location, Outcome, Severity, StageResult

EXACT = "return {'exact': float(targets == predictions)}"
FNS = "metric_fns=[exact]"
MANY = "tf.data.Dataset.from_tensor_slices({'inputs': ['one'] * 100, 'targets': ['1'] * 100})"
EVALUATED = evaluated("utils.DatasetConfig.split = 'validation'")
TRAINED = trained(INFER_EVAL)


def metric(body: str, *more: tuple[str, str], before: str = "") -> dict[str, str]:
    """Returns the module with another body for its metric function."""
    return module((EXACT, body), *more, before=before)


def postprocessed(function: str, *more: tuple[str, str]) -> dict[str, str]:
    """Returns the module with a postprocess function."""
    return module((FNS, f"{FNS}, postprocess_fn={function}"), *more)


def the_error(result: StageResult, code: str) -> Finding:
    """Returns the only error, which has this code."""
    (error,) = result.errors
    assert error.code == code
    return error


def line_of(files: dict[str, str], part: str) -> int:
    return next(n for n, line in enumerate(files["counting.py"].splitlines(), start=1) if part in line)


def fact(result: StageResult, name: str) -> str:
    return dict(result.facts)[name]


def unseen(result: StageResult) -> list[str]:
    return [text for text in result.not_checked if text.startswith(("the metrics of", "whether"))]


def test_a_metric_that_does_what_it_should_is_shown_with_its_best_value(resolve: Resolve) -> None:
    result = resolve(EVALUATED, module())
    assert result.outcome is Outcome.PASSED
    assert fact(result, "counting metrics") == "exact 1 with the targets as predictions"
    assert not unseen(result)


def test_a_metric_that_takes_its_targets_for_something_else(resolve: Resolve) -> None:
    files = metric("return {'exact': targets['text'] == predictions['text']}")
    error = the_error(resolve(EVALUATED, files), "SEQ20")
    line = line_of(files, "targets['text']")
    assert error.message == (
        f"the metrics of task counting cannot be computed: exact in counting.py:{line} raised TypeError: list indices "
        "must be integers or slices, not str, given the targets themselves as predictions"
    )
    assert error.location == Location("counting.py", line)
    assert error.fix == "correct the metric function"
    assert error.binding == "MIXTURE_OR_TASK_NAME"


@pytest.mark.parametrize(("concurrent", "code"), [("True", "SEQ21"), ("False", "SEQ20")])
def test_beside_training_it_would_be_seen_late(resolve: Resolve, concurrent: str, code: str) -> None:
    gin = f"{TRAINED}train_script.train.concurrent_metrics = {concurrent}\n"
    error = the_error(resolve(gin, metric("return {'exact': targets['text']}")), code)
    assert ("T5X shows its failure at the next eval" in error.message) is (code == "SEQ21")


def test_training_that_evaluates_no_predictions_calls_no_metric(resolve: Resolve) -> None:
    result = resolve(trained(), metric("raise RuntimeError"))
    assert result.outcome is Outcome.PASSED
    assert "counting metrics" not in dict(result.facts)


def test_a_metric_that_only_trained_models_please(resolve: Resolve) -> None:
    files = metric("return {'sum': sum(float(n) for text in predictions for n in text.split())}")
    error = the_error(resolve(EVALUATED, files), "SEQ20")
    assert "raised ValueError: could not convert string to float" in error.message
    assert error.message.endswith(", given random ids as predictions, as an untrained model gives them")


def test_a_metric_that_divides_by_the_words_predicted(resolve: Resolve) -> None:
    body = "return {'share': 1 / sum(len(text.split()) for text in predictions)}"
    error = the_error(resolve(EVALUATED, metric(body)), "SEQ20")
    assert error.message.endswith(
        "raised ZeroDivisionError: division by zero, given an empty prediction for every example"
    )


def test_a_postprocessor_that_needs_text(resolve: Resolve) -> None:
    files = postprocessed("lambda text, **_: text.split('x')[0][0]")
    error = the_error(resolve(EVALUATED, files), "SEQ24")
    assert "raised IndexError: string index out of range, given the prediction ''" in error.message
    assert "an empty prediction for the first example" in error.message or "random ids" in error.message
    assert error.fix == "make the postprocess function accept any text that an untrained model may produce"
    assert error.location == Location("counting.py", line_of(files, "postprocess_fn"))


def test_a_postprocessor_that_does_not_know_its_own_targets(resolve: Resolve) -> None:
    error = the_error(resolve(EVALUATED, postprocessed("lambda text, **_: {'one': 1}[text]")), "SEQ24")
    assert error.message.endswith("raised KeyError: '1 2', given the target '1 2'")


def test_a_postprocessor_without_keyword_arguments(resolve: Resolve) -> None:
    error = the_error(resolve(EVALUATED, postprocessed("str.strip")), "SEQ24")
    assert error.fix == "make the postprocess function accept any text that an untrained model may produce"
    error = the_error(resolve(EVALUATED, postprocessed("lambda text: text")), "SEQ24")
    assert error.fix == "let the postprocess function take **kwargs: SeqIO passes example=... and is_target=..."
    assert "its postprocess_fn raised TypeError: <lambda>() got an unexpected keyword argument" in error.message
    assert error.location == Location("counting.py", line_of(postprocessed("lambda text: text"), "postprocess_fn"))


def test_metrics_of_scores_get_scores(resolve: Resolve) -> None:
    scored = ("(targets, predictions)", "(targets, scores)")
    result = resolve(EVALUATED, metric("return {'mean': float(scores.mean()), 'number': len(scores)}", scored))
    assert result.outcome is Outcome.PASSED
    assert ", number 2 with the targets" in fact(result, "counting metrics")
    error = the_error(resolve(EVALUATED, metric("return {'best': max(s['score'] for s in scores)}", scored)), "SEQ20")
    assert error.message.endswith(", given generated scores")


def test_metrics_that_ask_for_scores_beside_predictions(resolve: Resolve) -> None:
    both = ("(targets, predictions)", "(targets, predictions, aux_values)")
    result = resolve(EVALUATED, metric("return {'mean': float(sum(aux_values['scores']))}", both))
    assert result.outcome is Outcome.PASSED
    error = the_error(resolve(EVALUATED, metric("return {'mean': aux_values['logits']}", both)), "SEQ20")
    assert "raised KeyError: 'logits'" in error.message


def test_metric_objects_are_called_too(resolve: Resolve) -> None:
    count = """
import flax

@flax.struct.dataclass
class Count(seqio.metrics.Metric):
    model_output_type: seqio.metrics.ModelOutputType = seqio.metrics.ModelOutputType.OUTPUT
    number: int = 0

    @classmethod
    def from_model_output(cls, inputs, model_output, features, target_field_name='targets', mask=None, indices_2d=None):
        return cls(number=len(model_output))

    def compute(self):
        return {'count': BODY}
"""
    files = {"counting.py": TASK.replace("FEATURE =", f"{count}\n\nFEATURE =").replace(FNS, "metric_objs=[Count()]")}
    text = files["counting.py"].replace("ModelOutputType.OUTPUT", "ModelOutputType.PREDICTION")
    good = {"counting.py": text.replace("BODY", "self.number")}
    result = resolve(EVALUATED, good)
    assert result.outcome is Outcome.PASSED
    assert fact(result, "counting metrics") == "count 2 with the targets as predictions"
    bad = {"counting.py": text.replace("BODY", "self.nothing")}
    error = the_error(resolve(EVALUATED, bad), "SEQ20")
    assert f"compute in counting.py:{line_of(bad, 'self.nothing')} raised AttributeError" in error.message
    other = files["counting.py"].replace("ModelOutputType.OUTPUT", "ModelOutputType.SCORE_WITH_INTERMEDIATES")
    error = the_error(resolve(EVALUATED, {"counting.py": other.replace("BODY", "0")}), "SEQ20")
    assert error.fix == "use PREDICTION, PREDICTION_WITH_AUX or SCORE: T5X gives SeqIO no other model outputs"


def test_a_metric_that_gives_no_dict(resolve: Resolve) -> None:
    files = metric("return float(targets == predictions)")
    error = the_error(resolve(EVALUATED, files), "SEQ20")
    assert error.fix == "return a dict of names and values from the metric function"
    line = line_of(files, "def exact")
    assert error.location == Location("counting.py", line)
    returned = f"exact in counting.py:{line} returned a float, 1.0, not a dict"
    assert error.message == f"the metrics of task counting cannot be computed: {returned}"


def test_a_postprocessor_that_is_a_class_of_python_is_shown_where_the_task_is_registered(resolve: Resolve) -> None:
    files = postprocessed("__import__('functools').partial")
    error = the_error(resolve(EVALUATED, files), "SEQ24")
    assert error.location == Location("counting.py", line_of(files, "seqio.TaskRegistry.add("))


def test_a_postprocessor_that_needs_a_value_that_a_preprocessor_made_none(resolve: Resolve) -> None:
    steps = "[lambda d: d.map(lambda e: {**e, 'label': None}), "
    text = postprocessed("lambda text, example, **_: int(example['label'])")["counting.py"]
    files = {"counting.py": text.replace("preprocessors=[", f"preprocessors={steps}")}
    assert "raised TypeError: int() argument must be" in the_error(resolve(EVALUATED, files), "SEQ24").message


def test_a_key_given_twice(resolve: Resolve) -> None:
    error = the_error(resolve(EVALUATED, module((FNS, "metric_fns=[exact, exact]"))), "SEQ22")
    assert error.message == (
        "two metric functions of task counting give the same key: Duplicate metric key 'exact' in Task 'counting'."
    )


def test_arguments_in_the_wrong_order(resolve: Resolve) -> None:
    files = module(("(targets, predictions)", "(predictions, targets)"))
    error = the_error(resolve(EVALUATED, files), "SEQ23")
    assert error.message == (
        "metric function exact of task counting has the positional arguments (predictions, targets), from which SeqIO "
        "cannot tell what to call it with"
    )
    assert error.location == Location("counting.py", line_of(files, "def exact"))


def test_whether_a_text_can_be_written_is_up_to_the_loggers(resolve: Resolve) -> None:
    files = metric("return {'verdict': 'good'}")
    files = {"counting.py": files["counting.py"].replace("metric_fns=[exact]", "metric_fns=[exact, other]")}
    files["counting.py"] = f"def other(targets, predictions):\n    return {{'other': 1.0}}\n\n\n{files['counting.py']}"
    loggers = "seqio.Evaluator.logger_cls = [@seqio.{}]\n"
    error = the_error(resolve(EVALUATED + loggers.format("TensorBoardLogger"), files), "INF12")
    assert error.location == Location("counting.py", line_of(files, "def exact"))
    assert error.message == (
        "the metrics of task counting cannot be written: verdict is 'good', not a number, and TensorBoardLogger raised "
        "ValueError: could not convert string to float: 'good'"
    )
    assert error.fix.startswith("return numbers, or the seqio.metrics value that is meant: Text")
    result = resolve(EVALUATED + loggers.format("JSONLogger"), files)
    assert result.outcome is Outcome.PASSED
    assert fact(result, "counting metrics") == "verdict a str, other 1 with the targets as predictions"


def test_values_that_loggers_know_need_not_be_numbers(resolve: Resolve) -> None:
    result = resolve(EVALUATED, metric("return {'sample': seqio.metrics.Text('| a table |')}"))
    assert result.outcome is Outcome.PASSED


def test_loggers_and_evaluators_of_the_users_own_are_not_called(resolve: Resolve) -> None:
    own = """
class Wandb(seqio.loggers.Logger):
    def __init__(self, output_dir):
        raise RuntimeError('no account')

    def __call__(self, **_):
        pass


class Evaluator(seqio.Evaluator):
    def evaluate(self, **_):
        raise RuntimeError('not here')
"""
    files = {"counting.py": TASK.replace("FEATURE =", f"{own}\n\nFEATURE =")}
    result = resolve(f"{EVALUATED}seqio.Evaluator.logger_cls = [@counting.Wandb, @seqio.JSONLogger]\n", files)
    assert result.outcome is Outcome.PASSED
    assert unseen(result) == ["whether Wandb can write the metrics"]
    result = resolve(f"{EVALUATED}eval_script.evaluate.inference_evaluator_cls = @counting.Evaluator\n", files)
    assert result.outcome is Outcome.PASSED
    assert "the metrics of counting: Evaluator computes them in a way of its own" in result.not_checked


def test_a_metric_that_needs_the_network_is_not_judged(resolve: Resolve) -> None:
    body = "import urllib.request; return {'exact': urllib.request.urlopen('http://127.0.0.1:9/')}"
    result = resolve(EVALUATED, metric(body))
    assert result.outcome is Outcome.PASSED
    assert unseen(result) == ["the metrics of counting: they need the network"]


def test_a_metric_that_does_not_come_back_is_left_behind(resolve: Resolve) -> None:
    patience = "import t5x_harness.resolve.early_metrics\nt5x_harness.resolve.early_metrics.SECONDS = 1.0\n"
    result = resolve(EVALUATED, metric("import time; time.sleep(600)", before=patience), own_process=True)
    assert result.outcome is Outcome.PASSED
    assert unseen(result) == ["the metrics of counting: they took too long"]


def test_a_metric_over_groups_of_examples_is_given_whole_groups(resolve: Resolve) -> None:
    """A sample may end in the middle of a question's choices."""
    files = metric("return {'groups': len(list(zip(*[iter(targets)] * 3, strict=True)))}", (READ, MANY))
    result = resolve(EVALUATED, files)
    assert result.outcome is Outcome.PASSED
    assert fact(result, "counting metrics") == "groups 21 with the targets as predictions"


def test_a_metric_that_refuses_a_sample_may_accept_the_split(resolve: Resolve) -> None:
    body = "assert len(targets) == 100; return {'all': 1.0}"
    result = resolve(EVALUATED, metric(body, (READ, MANY)))
    (warning,) = (f for f in result.findings if f.code == "SEQ20")
    assert warning.severity is Severity.WARNING
    assert warning.message.endswith("; it was given the first 64 examples, which may be what it refuses")
    result = resolve(EVALUATED, metric(body))
    the_error(result, "SEQ20")


def test_a_sample_that_is_not_the_whole_split_is_cut_as_the_run_cuts_it(resolve: Resolve) -> None:
    gin = f"{EVALUATED}TASK_FEATURE_LENGTHS = {{'inputs': 32, 'targets': 2}}\n"
    body = "return {'longest': max(map(len, predictions))}"
    assert fact(resolve(gin, metric(body)), "counting metrics") == "longest 2 with the targets as predictions"


def test_a_part_of_a_split_is_not_a_split_to_the_evaluator(resolve: Resolve) -> None:
    gin = TRAINED.replace("  split = 'validation'", "  split = 'validation[:1]'")
    (warning,) = (f for f in resolve(gin, module()).findings if f.code == "SEQ18")
    assert warning.message.startswith("task counting has no split 'validation[:1]'")
    assert warning.fix == "use 'validation': only whole splits can be read here"


def test_a_mixture_none_of_whose_tasks_has_the_split(resolve: Resolve) -> None:
    mixed = "\nseqio.MixtureRegistry.add('mixed', ['counting'], default_rate=1)\n"
    files = module(after=mixed)
    name = "MIXTURE_OR_TASK_NAME = 'mixed'"
    split = "utils.DatasetConfig.split = 'tset'"
    the_error(resolve(inferred(name, split), files), "INF11")
    the_error(resolve(evaluated(name, split), files), "SEQ19")


TARGETS = [np.array([5, 6, 1]), np.array([7, 1]), np.array([], np.int32)]


def prediction(word: str, vocabulary: seqio.Vocabulary) -> np.ndarray:
    (found,) = (tokens for words, tokens in generated_predictions(TARGETS, vocabulary) if word in words)
    return found


def test_random_ids_are_of_the_vocabulary_and_the_same_each_time() -> None:
    vocabulary = seqio.ByteVocabulary()
    random = prediction("random", vocabulary)
    assert random.shape == (3, 16)
    assert random.min() >= 0
    assert random.max() < vocabulary.vocab_size
    np.testing.assert_array_equal(random, prediction("random", vocabulary))
    assert isinstance(vocabulary.decode(random[0].tolist()), str)


def test_one_prediction_is_unknown_where_the_vocabulary_has_an_unknown_token() -> None:
    np.testing.assert_array_equal(prediction("unknown", seqio.ByteVocabulary())[:2], [[2, 2, 2, 2], [7, 1, 0, 0]])
    assert not any("unknown" in words for words, _ in generated_predictions(TARGETS, seqio.PassThroughVocabulary(100)))
