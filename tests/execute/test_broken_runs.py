"""A mistake fails in the earliest stage that can see it, with the line, the values and the fix.

Those that broken copies of the sample configs show are in tests/sample_tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_run import LocalRun

from t5x_harness.spec import Finding, Outcome, Severity, Stage, StageResult

Backend = Callable[..., LocalRun]


def fail(backend: LocalRun, stage: Stage) -> StageResult:
    """Runs up to the stage that must fail; those before it pass and those after it are left out."""
    for each in backend.stages:
        result = backend.stage(each)
        if each is stage:
            break
        assert result.outcome is Outcome.PASSED, (each, result.findings, result.log_tail)
    assert result.outcome is Outcome.FAILED
    for later in backend.stages[backend.stages.index(stage) + 1 :]:
        if stage is not Stage.EVAL:
            assert backend.stage(later).outcome is Outcome.NOT_RUN
            assert f"because {stage} failed" in backend.stage(later).not_checked[0]
    return result


def the_error(result: StageResult) -> Finding:
    (error,) = result.errors
    return error


def line_of(text: str, part: str) -> int:
    """The line of a config that holds some text, the last one, which wins."""
    return max(number for number, line in enumerate(text.splitlines(), start=1) if part in line)


@pytest.mark.parametrize(
    ("extra", "code", "part", "says", "fix"),
    [
        pytest.param(
            "network.T5Config.vocab_size = 104",
            "SEQ12",
            "= 104",
            "and the embedding has 104 rows",
            "set network.T5Config.vocab_size to at least 259",
            id="ids-beyond-the-embedding",
        ),
        pytest.param(
            "USE_CACHED_TASKS = True\nMIXTURE_OR_TASK_NAME = 'bad_preprocess'",
            "USR01",
            None,
            "stage_tasks.py:",
            "correct ",
            id="preprocessor-raises",
        ),
        pytest.param(
            "network.T5Config.num_heds = 4",
            "GIN13",
            "num_heds",
            "T5Config has no parameter num_heds",
            "correct the parameter's name",
            id="unknown-parameter",
        ),
        pytest.param(
            "import no_such_module",
            "GIN15",
            "no_such_module",
            "module no_such_module cannot be imported",
            "install the package that has no_such_module (python -m pip install no_such_module, most often)",
            id="missing-module",
        ),
    ],
)
def test_what_resolve_sees(
    backend: Backend, train_text: str, extra: str, code: str, part: str | None, says: str, fix: str
) -> None:
    result = fail(backend(train_text, extra=extra + "\n"), Stage.RESOLVE)
    error = next(e for e in result.errors if e.code == code)
    assert says in error.message
    assert error.fix is not None
    assert error.fix.startswith(fix)
    assert error.location is not None
    if part:
        assert Path(error.location.file).name == "config.gin"
        assert error.location.line == line_of(train_text + extra, part)
    else:
        assert Path(error.location.file).name == "stage_tasks.py"
        assert result.log_tail  # the traceback is in the log
    assert "Traceback" not in error.message


def test_all_missing_values_are_named_at_once(backend: Backend, train_text: str) -> None:
    extra = "DROPOUT_RATE = %gin.REQUIRED\nTASK_FEATURE_LENGTHS = %gin.REQUIRED\n"
    errors = {error.binding: error for error in fail(backend(train_text, extra=extra), Stage.RESOLVE).errors}
    assert errors.keys() == {"DROPOUT_RATE", "TASK_FEATURE_LENGTHS"}
    for name, error in errors.items():
        assert error.code == "GIN03"
        assert f"{name} is required and has no value" in error.message
        assert str(error.fix).startswith(f"bind {name}")
        assert error.location is not None
        assert error.location.line == line_of(train_text + extra, f"{name} = %")


def test_silent_mistakes_are_told(backend: Backend, train_text: str) -> None:
    """T5X trains on with each of them."""
    extra = """
MIXTURE_OR_TASK_NAME = 'no_eos'
TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 16}
train_eval/utils.DatasetConfig.split = 'valid'
"""
    result = backend(train_text, extra=extra).stage(Stage.RESOLVE)
    warnings = {f.code: f.message for f in result.findings if f.severity is Severity.WARNING}
    assert warnings.keys() == {"SEQ14", "SEQ16"}
    assert "100% of the sampled examples of no_eos train lose part of inputs" in warnings["SEQ16"]
    error = the_error(result)  # a split that the config names itself, and no task has
    assert error.code == "SEQ18"
    assert "no split 'valid'" in error.message


@pytest.mark.parametrize(
    ("extra", "code", "says", "fix"),
    [
        pytest.param(
            "partitioning.PjitPartitioner.num_partitions = 8\nnetwork.T5Config.num_heads = 6",
            "MSH06",
            "axis heads of",
            "make network.T5Config.num_heads divisible by 8",
            id="heads-and-partitions",
        ),
        pytest.param(
            "utils.SaveCheckpointConfig.period = 3",
            "MSH12",
            "checkpoint period is 3 and eval_period is 2",
            "set checkpoint period to 2 or eval_period to a divisor of 3",
            id="periods",
        ),
        pytest.param(
            "TRAIN_STEPS = 20_000\nutils.RestoreCheckpointConfig.path = 'gs://b/m/checkpoint_1000000'\n"
            "utils.RestoreCheckpointConfig.mode = 'specific'",
            "CKP01",
            "TRAIN_STEPS is 20000, and the checkpoint gs://b/m/checkpoint_1000000 is already at step 1000000",
            "train steps count from zero: set TRAIN_STEPS to 1000000 plus the steps to train",
            id="steps-behind-the-checkpoint",
        ),
        pytest.param(
            "TRAIN_STEPS = 1e3", "GIN09", "the train steps are 1000.0, a float", "give a whole number", id="float-steps"
        ),
    ],
)
def test_what_plan_sees(backend: Backend, train_text: str, extra: str, code: str, says: str, fix: str) -> None:
    result = fail(backend(train_text, extra=extra + "\n", slice="v3-8"), Stage.PLAN)
    error = next(e for e in result.errors if e.code == code)
    assert says in error.message
    assert error.fix is not None
    assert error.fix.startswith(fix)
    assert error.location is not None
    assert Path(error.location.file).name == "config.gin"


@pytest.mark.journey
def test_a_metric_that_raises_beside_training_is_told_as_the_metrics_fault(
    backend: Backend, train_text: str, infer_eval_text: str
) -> None:
    """T5X raises it an eval later, from a thread, with a traceback through its own evaluator."""
    extra = f"""{infer_eval_text}
MIXTURE_OR_TASK_NAME = 'late_metric'
train_script.train.inference_evaluator_cls = @seqio.Evaluator
seqio.Evaluator.logger_cls = []
"""
    error = the_error(fail(backend(train_text, extra=extra), Stage.TRAIN))
    assert error.code == "SEQ21"
    assert "the metrics of task late_metric cannot be computed: __call__ in " in error.message
    assert "raised IndexError: list index out of range" in error.message
    assert "in a thread beside training" in error.message
    assert error.location is not None
    assert Path(error.location.file).name == "stage_tasks.py"


def test_an_infer_config_with_a_wrong_mode(backend: Backend, infer_text: str) -> None:
    error = the_error(fail(backend(infer_text, extra="infer_script.infer.mode = 'generate'\n"), Stage.INFER))
    assert (error.code, error.message) == ("INF04", "infer mode generate does not exist")
    assert error.fix == "use predict, score or predict_with_aux"


def test_a_local_checkpoint_that_does_not_exist_is_an_error_beside_others(
    backend: Backend, infer_text: str, tmp_path: Path
) -> None:
    (tmp_path / "trained/checkpoint_400").mkdir(parents=True)
    extra = f"CHECKPOINT_PATH = '{tmp_path}/trained/checkpoint_500'\n"
    error = the_error(fail(backend(infer_text, extra=extra), Stage.PLAN))
    assert error.code == "CKP04"
    assert error.message.endswith("beside it are checkpoint_400")
    assert error.fix == "correct the step"


def test_a_run_that_kills_its_process_is_a_failed_stage(backend: Backend, train_text: str, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    result: Any = fail(backend(train_text, extra="import deadly\n"), Stage.RESOLVE)
    assert the_error(result).code == "RUN07"
    assert "SIGKILL" in the_error(result).message
