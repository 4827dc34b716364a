"""A stage is green only if the work that it claims was observed: checkpoints, examples, numbers, lines, steps."""

from collections.abc import Callable

import numpy as np
import pytest
from local_run import LocalRun

from t5x_harness.execute.train import nothing_learnt, sampled
from t5x_harness.spec import Outcome, Severity, Stage, StageResult

Backend = Callable[..., LocalRun]

EVALUATED_BY = "eval_script.evaluate.inference_evaluator_cls = @stage_tasks.EvaluatorOfOnesOwn\n"
OWN_EVALUATOR = "stage_tasks.EvaluatorOfOnesOwn.logger_cls = []\n"


def last(backend: LocalRun) -> StageResult:
    return backend.stage(backend.stages[-1])


def the_error(result: StageResult) -> tuple[str, str]:
    assert result.outcome is Outcome.FAILED
    (error,) = result.errors
    return error.code, error.message


def test_an_evaluation_of_no_checkpoint_fails(backend: Backend, eval_text: str) -> None:
    result = last(backend(eval_text, extra="CHECKPOINT_PATH = 'unread'\nutils.RestoreCheckpointConfig.path = []\n"))
    assert the_error(result) == (
        "RUN02",
        "no checkpoint was restored and evaluated, so nothing is proved: utils.RestoreCheckpointConfig.path = []",
    )
    assert str(result.errors[0].location).endswith(f":{len(eval_text.splitlines()) + 2}")
    assert result.errors[0].fix == "name a checkpoint that is left to evaluate"
    assert result.exercised == 0


@pytest.mark.parametrize(
    ("task", "reason", "also", "warned"),
    [
        ("undefined_metric", "it gave no finite number", (), ["pearson of undefined_metric is nan"]),
        ("no_result", "it gave no finite number", ("the metrics of no_result: its metric_fns return none",), []),
    ],
)
def test_metrics_without_a_number_are_no_evaluation(
    backend: Backend, eval_text: str, task: str, reason: str, also: tuple[str, ...], warned: list[str]
) -> None:
    result = last(backend(eval_text, extra=f"MIXTURE_OR_TASK_NAME = '{task}'\n"))
    assert result.outcome is Outcome.NOT_RUN
    assert result.not_checked[0] == f"eval: not run, because {reason}"
    assert set(also) < set(result.not_checked)
    assert [(f.code, f.severity, f.message) for f in result.findings] == [
        ("RUN04", Severity.WARNING, message) for message in warned
    ]


def test_an_argument_that_each_call_gives_itself_is_a_note(backend: Backend, eval_text: str) -> None:
    bound = "stage_tasks.EvaluatorOfOnesOwn.use_cached = True"
    result = last(backend(eval_text, extra=f"{EVALUATED_BY}{OWN_EVALUATOR}{bound}\n"))
    (note,) = (finding for finding in result.findings if finding.code == "GIN38")
    assert note.severity is Severity.NOTE
    assert note.message == f"{bound} has no effect: each call of EvaluatorOfOnesOwn gives use_cached itself"
    assert str(note.location).endswith(f":{len(eval_text.splitlines()) + 3}")


def test_a_number_beside_what_is_none_is_enough_and_the_rest_is_said(backend: Backend, eval_text: str) -> None:
    result = last(backend(eval_text, extra="MIXTURE_OR_TASK_NAME = 'metrics_of_all_kinds'\n"))
    assert (result.outcome, result.exercised) == (Outcome.PASSED, 8)
    assert [(m.name, m.value) for m in result.measures] == [("ratio", 0.5)]
    assert "what metrics_of_all_kinds measures, which is not a number: shown is of type Text" in result.not_checked
    assert ("metrics_of_all_kinds metrics", "ratio 0.5, shown is of type Text") in result.facts
    assert ("evaluated", "8 examples of metrics_of_all_kinds") in result.facts


def test_a_metric_that_is_not_finite_is_a_warning_beside_one_that_is(backend: Backend, eval_text: str) -> None:
    result = last(backend(eval_text, extra="MIXTURE_OR_TASK_NAME = 'undefined_and_defined'\n"))
    assert result.outcome is Outcome.PASSED
    assert [(f.code, f.message) for f in result.findings] == [("RUN04", "pearson of undefined_and_defined is nan")]


def test_numbers_for_which_no_example_went_through_the_model_prove_nothing(backend: Backend, eval_text: str) -> None:
    result = last(backend(eval_text, extra=EVALUATED_BY + OWN_EVALUATOR))
    assert the_error(result) == ("RUN02", "no example was predicted or scored, so nothing is proved")


def test_tasks_that_are_not_evaluated_are_named(backend: Backend, eval_text: str) -> None:
    evaluator = EVALUATED_BY.replace("EvaluatorOfOnesOwn", "EvaluatorOfOneTask")
    own = OWN_EVALUATOR.replace("EvaluatorOfOnesOwn", "EvaluatorOfOneTask")
    result = last(backend(eval_text, extra=f"MIXTURE_OR_TASK_NAME = 'three_tasks'\n{evaluator}{own}"))
    assert result.outcome is Outcome.PASSED
    assert len({measure.of for measure in result.measures}) == 1
    left_out = [text for text in result.not_checked if text.startswith("the metrics of ")]
    assert len(left_out) == 2
    assert "the metrics of no_metrics: it has no metric_fns" in left_out
    assert any(text.endswith(": its evaluator left it out") for text in left_out)


@pytest.mark.parametrize(
    ("write_fn", "outcome", "code", "message"),
    [
        ("write_none", Outcome.FAILED, "INF03", "inference left no ref_reverse-predict.jsonl-00000-of-00001 with its"),
        ("write_blank", Outcome.FAILED, "RUN02", "no line was written for 8 examples of ref_reverse, so nothing is"),
        ("write_some", Outcome.PASSED, "RUN02", "2 lines were written for 8 examples"),
    ],
)
def test_lines_that_were_not_written_are_missed(
    backend: Backend, infer_text: str, write_fn: str, outcome: Outcome, code: str, message: str
) -> None:
    result = last(backend(infer_text, extra=f"infer_script.infer.write_fn = @stage_tasks.{write_fn}\n"))
    assert result.outcome is outcome
    (finding,) = result.findings
    assert finding.code == code
    assert finding.message.startswith(message)


def test_a_trainer_that_makes_no_step_trains_nothing(backend: Backend, train_text: str) -> None:
    run = backend(train_text, extra="train_script.train.trainer_cls = @stage_tasks.IdleTrainer\n")
    assert run.stage(Stage.TRAIN).exercised == 0
    assert run.stage(Stage.TRAIN).outcome is Outcome.FAILED


RATES = [0.001] * 4
BEFORE = {"kernel": np.linspace(-1, 1, 10_000).reshape(100, 100), "scale": np.ones(3), "bias": np.zeros(3)}


def test_parameters_that_stay_are_named_with_the_rates() -> None:
    assert nothing_learnt(sampled(BEFORE), BEFORE, RATES) == (
        "training changed nothing: at learning rates up to 0.001, no parameter changed by more than 0 of its size"
    )
    nearly = {**BEFORE, "kernel": BEFORE["kernel"] * (1 + 3e-8)}
    assert nothing_learnt(sampled(BEFORE), nearly, RATES) is not None


@pytest.mark.parametrize(("name", "value"), [("kernel", 1.001), ("scale", np.nan), ("bias", None)])
def test_one_array_that_changes_is_enough(name: str, value: float | None) -> None:
    after = {**BEFORE, name: BEFORE[name] + 1e-9 if value is None else BEFORE[name] * value}
    assert nothing_learnt(sampled(BEFORE), after, RATES) is None


def test_rates_that_are_next_to_nothing_explain_it() -> None:
    """This happens in the first steps of a long warm-up; the plan reports schedules whose rates remain that low."""
    assert nothing_learnt(sampled(BEFORE), BEFORE, [0.0, 1e-7, 2e-7]) is None
    assert nothing_learnt(sampled(BEFORE), BEFORE, []) is None


def test_without_arrays_nothing_is_judged() -> None:
    assert nothing_learnt([], BEFORE, RATES) is None


def test_a_copy_is_compared() -> None:
    params = {"kernel": np.ones(3, np.float32)}
    before = sampled(params)
    params["kernel"] += 1
    assert nothing_learnt(before, params, RATES) is None


def test_a_config_that_saves_nothing_is_evaluated_with_the_final_state(backend: Backend, train_text: str) -> None:
    """T5X runs such a config, so it is no error here; the report says what was not tried."""
    run = backend(train_text, extra="utils.CheckpointConfig.save = None\n")
    results = {stage: run.stage(stage) for stage in run.stages}
    assert [result.outcome for result in results.values()] == [Outcome.PASSED] * len(results)
    assert ("checkpoints", "none") in results[Stage.TRAIN].facts
    assert (
        "saving and restoring: the config writes no checkpoint; eval and infer begin with the final state, which is "
        "saved for them"
    ) in results[Stage.TRAIN].not_checked
    assert results[Stage.EVAL].exercised
    assert results[Stage.INFER].exercised
