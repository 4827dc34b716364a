"""A mistake fails in the earliest stage that can see it, with the line, the values and the fix."""

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
            "MIXTURE_OR_TASK_NAME = 'ref_revers'",
            "SEQ04",
            "ref_revers'",
            "no task or mixture is called 'ref_revers'",
            "use 'ref_reverse'",
            id="unknown-task",
        ),
        pytest.param(
            "TASK_FEATURE_LENGTHS = {'inputs': 32}",
            "SEQ15",
            "{'inputs': 32}",
            "task_feature_lengths is {'inputs': 32} and has no length for targets",
            "add targets",
            id="missing-length",
        ),
        pytest.param(
            "network.T5Config.vocab_size = 104",
            "SEQ12",
            "= 104",
            "and the embedding has 104 rows",
            "set network.T5Config.vocab_size to at least 259",
            id="ids-beyond-the-embedding",
        ),
        pytest.param(
            "VOCABULARY = @seqio.ByteVocabulary()\nseqio.ByteVocabulary.extra_ids = 100",
            "SEQ09",
            "VOCABULARY = @",
            "feature inputs of task ref_reverse and 1 more use ByteVocabulary (259 ids), the model ByteVocabulary (359",
            "give the model the task's vocabulary",
            id="vocabularies-differ",
        ),
        pytest.param(
            "train/utils.DatasetConfig.split = 'trian'",
            "SEQ19",
            "'trian'",
            "task ref_reverse has no split 'trian' (it has: train, validation, test)",
            "use 'train'",
            id="split-typo",
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
        pytest.param(
            "DROPOUT_RATE = %gin.REQUIRED\nTASK_FEATURE_LENGTHS = %gin.REQUIRED",
            "GIN03",
            "DROPOUT_RATE = %",
            "DROPOUT_RATE is required and has no value",
            "bind DROPOUT_RATE",
            id="required-values",
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
    assert "Traceback" not in error.message


def test_all_missing_values_are_named_at_once(backend: Backend, train_text: str) -> None:
    extra = "DROPOUT_RATE = %gin.REQUIRED\nTASK_FEATURE_LENGTHS = %gin.REQUIRED\n"
    result = backend(train_text, extra=extra).stage(Stage.RESOLVE)
    assert {e.binding for e in result.errors} == {"DROPOUT_RATE", "TASK_FEATURE_LENGTHS"}


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
            "BATCH_SIZE = 12",
            "MSH02",
            "the batch size of train and train_eval is 12, and the mesh's data axis has 8 positions: 12 / 8 leaves 4",
            "set BATCH_SIZE to 8 or 16",
            id="batch-and-mesh",
        ),
        pytest.param(
            "partitioning.PjitPartitioner.num_partitions = 8\nnetwork.T5Config.num_heads = 6",
            "MSH06",
            "axis heads of",
            "make network.T5Config.num_heads divisible by 8",
            id="heads-and-partitions",
        ),
        pytest.param(
            "partitioning.PjitPartitioner.num_partitions = 3",
            "MSH03",
            "3",
            "v3-8 can be cut into submeshes of 1, 2, 4 or 8 devices",
            id="no-such-mesh",
        ),
        pytest.param(
            "trainer.Trainer.num_microbatches = 3",
            "MSH11",
            "the batch size 8 is not divisible by 3 microbatches",
            "set trainer.Trainer.num_microbatches to a divisor of 8",
            id="microbatches",
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
            "TRAIN_STEPS = 1e3",
            "GIN09",
            "the train steps are 1000.0, a float",
            "give a whole number",
            id="float-steps",
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


@pytest.mark.parametrize(
    ("task", "code", "says"),
    [
        ("bad_metric", "SEQ20", "metric_with_a_bug in "),
        ("bad_postprocess", "SEQ24", "int_postprocessor in "),
    ],
)
def test_an_eval_config_with_a_bug_in_the_task(
    backend: Backend, eval_text: str, task: str, code: str, says: str
) -> None:
    extra = f"MIXTURE_OR_TASK_NAME = '{task}'\nutils.DatasetConfig.split = 'validation'\n"
    result = fail(backend(eval_text, extra=extra), Stage.RESOLVE)
    error = the_error(result)
    assert error.code == code
    assert says in error.message
    assert error.location is not None
    assert Path(error.location.file).name == "stage_tasks.py"
    assert result.log_tail  # the traceback is in the log


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
