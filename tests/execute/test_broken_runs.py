"""A mistake fails in the earliest stage that can detect it, with the line, the values and the fix.

The mistakes in broken copies of the sample configs are in tests/sample_tasks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import t5x_in_use
from local_run import LocalRun

from t5x_harness.execute.execution import Execution
from t5x_harness.findings.rule import evaluated, inferred, trained
from t5x_harness.spec import Finding, Mode, Outcome, RunResult, RunSettings, RunSpec, Severity, Stage, StageResult

Backend = Callable[..., LocalRun]


def fail(backend: LocalRun, stage: Stage) -> StageResult:
    """Runs up to the stage that must fail; earlier stages pass and later ones are left out."""
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
    """Returns the number of the last line of a config that contains a text; the last one wins."""
    return max(number for number, line in enumerate(text.splitlines(), start=1) if part in line)


def test_a_preprocessor_that_raises_is_named_with_its_line(backend: Backend, train_text: str) -> None:
    """The data is looked at although the config asks for a cache, and the traceback is in the log."""
    extra = "USE_CACHED_TASKS = True\nMIXTURE_OR_TASK_NAME = 'bad_preprocess'\n"
    result = fail(backend(train_text, extra=extra), Stage.RESOLVE)
    error = next(error for error in result.errors if error.code == "USR01")
    assert error.location is not None
    assert Path(error.location.file).name == "stage_tasks.py"
    assert "stage_tasks.py:" in error.message
    assert "Traceback" not in error.message
    assert str(error.fix).startswith("correct ")
    assert result.log_tail


@pytest.mark.parametrize(
    ("extra", "code", "fix"),
    [
        ("network.T5Config.num_heds = 4", "GIN13", "correct the parameter's name"),
        (
            "import no_such_module",
            "GIN15",
            "install the package that has no_such_module (python -m pip install no_such_module, most often)",
        ),
    ],
)
def test_what_gin_refuses_has_its_line_and_a_fix(
    backend: Backend, train_text: str, extra: str, code: str, fix: str
) -> None:
    error = the_error(fail(backend(train_text, extra=f"{extra}\n"), Stage.RESOLVE))
    assert error.code == code
    assert str(error.fix).startswith(fix)
    assert error.location is not None
    assert (Path(error.location.file).name, error.location.line) == ("config.gin", line_of(train_text + extra, extra))


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
    """T5X continues to train with each of them."""
    extra = """
MIXTURE_OR_TASK_NAME = 'no_eos'
TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 16}
train_eval/utils.DatasetConfig.split = 'valid'
"""
    result = backend(train_text, extra=extra).stage(Stage.RESOLVE)
    warnings = {f.code: f.message for f in result.findings if f.severity is Severity.WARNING}
    assert warnings.keys() == {"SEQ14", "SEQ16"}
    assert "100% of the sampled examples of no_eos train lose part of inputs" in warnings["SEQ16"]
    error = the_error(result)  # a split that the config itself names, but that no task has
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
    """T5X raises it one eval later, from a thread, with a traceback through its own evaluator."""
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


def test_a_run_that_kills_its_process_is_a_failed_stage(backend: Backend, train_text: str, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    result: Any = fail(backend(train_text, extra="import deadly\n"), Stage.RESOLVE)
    assert the_error(result).code == "RUN07"
    assert "SIGKILL" in the_error(result).message


def test_a_stage_that_needs_a_checkpoint_without_one(tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text("", encoding="utf-8")
    spec = RunSpec(("run.gin",), runtime=t5x_in_use.name, cwd=str(tmp_path))
    run = Execution(spec, tmp_path / "work", t5x_in_use.found(), "", lambda event: None)
    result = StageResult.from_json(run.run(Stage.EVAL, lambda run, report: run.trained_checkpoint()))
    assert result.outcome is Outcome.FAILED
    (error,) = result.findings
    assert error.code == "RUN08"
    assert error.message == "training wrote no checkpoint, so there is none to evaluate or infer with"
    assert error.fix == "let the run save: bind a SaveCheckpointConfig whose period is above 0"


def test_a_jax_without_the_rules_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax
    from jax.interpreters import mlir

    monkeypatch.setattr(mlir, "_platform_specific_lowerings", {"cpu": {}})
    spec = RunSpec(("run.gin",), settings=RunSettings(tpu_numerics=True))
    run = Execution(spec, tmp_path / "work", t5x_in_use.found(), "", lambda event: None)
    result = StageResult.from_json(run.run(Stage.TRAIN, lambda run, report: None))
    (error,) = result.findings
    assert (error.code, error.message, error.fix) == (
        "RUN08",
        f"--tpu-numerics: JAX {jax.__version__} has no rule for dot_general where JAX 0.10.2 has it",
        "install JAX 0.10.2, or run without --tpu-numerics",
    )


SPLIT = "train/utils.DatasetConfig.split"
SAVE = "utils.CheckpointConfig.save"
DECAY = "adafactor.Adafactor.decay_rate"
OPTIMIZER = "models.EncoderDecoderModel.optimizer_def"
DECODE = "models.EncoderDecoderModel.decode_fn"
CONVERTER = "models.EncoderDecoderModel.feature_converter_cls"

# The config's mode, the line that is added, and the resulting message.
CASES = [
    (Mode.TRAIN, "TASK_FEATURE_LENGTHS = 1", "it is about TASK_FEATURE_LENGTHS = 1 (run.gin:"),
    (Mode.TRAIN, "MIXTURE_OR_TASK_NAME = 5", "MIXTURE_OR_TASK_NAME = 5 (run.gin:"),
    (Mode.TRAIN, "train_script.train.model = 1", "train.model = 1 (run.gin:"),
    (Mode.TRAIN, "MODEL = None", "MODEL = None (run.gin:"),
    (Mode.TRAIN, f"{SPLIT} = 1", f"{SPLIT} = 1, where {SPLIT} is declared as str; resolve cannot use it: "),
    (Mode.TRAIN, f"{SAVE} = 'best'", "AttributeError: 'str' object has no attribute 'period'"),
    (Mode.TRAIN, "utils.CheckpointConfig.restore = 'last'", "utils.CheckpointConfig.restore = 'last' (run.gin:"),
    (Mode.TRAIN, "utils.SaveCheckpointConfig.checkpoint_steps = 5", "utils.SaveCheckpointConfig.checkpoint_steps = 5"),
    (Mode.TRAIN, "network.T5Config.vocab_size = []", "network.T5Config.vocab_size = [] (run.gin:"),
    (Mode.TRAIN, "network.T5Config.num_heads = 0", "it is about network.T5Config.num_heads = 0 (run.gin:"),
    (Mode.TRAIN, "network.T5Config.num_heads = -4", "it is about network.T5Config.num_heads = -4 (run.gin:"),
    (Mode.TRAIN, "DROPOUT_RATE = None", "DROPOUT_RATE = None (run.gin:"),
    (Mode.TRAIN, f"from t5x import models\n{CONVERTER} = 'lm'", f"{CONVERTER} = 'lm' (run.gin:"),
    (Mode.TRAIN, "train_script.train.checkpoint_cfg = 'a'", "train.checkpoint_cfg = 'a' (run.gin:"),
    (Mode.TRAIN, "train_script.train.random_seed = 1.5", "it is about train.random_seed = 1.5 (run.gin:"),
    (Mode.TRAIN, "train_script.train.eval_steps = 'all'", "it is about train.eval_steps = 'all' (run.gin:"),
    (Mode.TRAIN, f"from t5x import adafactor\n{DECAY} = 'high'", f"it is about {DECAY} = 'high' (run.gin:"),
    (Mode.TRAIN, f"from t5x import models\n{OPTIMIZER} = None", f"it is about {OPTIMIZER} = None (run.gin:"),
    (Mode.INFER, f"from t5x import models\n{DECODE} = @seqio.ByteVocabulary()", f"it is about {DECODE} = @seqio.Byte"),
    (Mode.EVAL, "eval_script.evaluate.restore_checkpoint_cfg = True", "evaluate.restore_checkpoint_cfg = True"),
    (Mode.INFER, "infer_script.infer.model = @seqio.ByteVocabulary()", "infer.model = @seqio.ByteVocabulary()"),
    (Mode.INFER, "infer_script.infer.shard_id = 'a'", "it is about infer.shard_id = 'a' (run.gin:"),
    (Mode.INFER, "CHECKPOINT_PATH = 1", "CHECKPOINT_PATH = 1"),
]
_SPLIT = "utils.DatasetConfig.split = 'validation'"
CONFIGS = {Mode.TRAIN: trained(), Mode.EVAL: evaluated(_SPLIT), Mode.INFER: inferred(_SPLIT)}


@pytest.mark.parametrize(("mode", "line", "says"), CASES, ids=[line.splitlines()[-1] for _, line, _ in CASES])
def test_the_binding_is_named(run_until: Callable[..., RunResult], mode: Mode, line: str, says: str) -> None:
    gin = f"{CONFIGS[mode]}{line}\n"
    result = run_until(Stage.PLAN, gin, own_process=True)
    (error,) = (finding for stage in result.stages for finding in stage.errors)
    assert error.code == "RUN01"
    assert says in error.message
    assert str(error.location) == f"run.gin:{len(gin.splitlines())}"
    assert error.fix
