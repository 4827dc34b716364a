"""A value of a type that nobody can use is reported as T5X's, with the binding's line, and never as the harness's."""

from __future__ import annotations

from pathlib import Path

import pytest
import t5x_in_use
from local_run import LocalRun

from t5x_harness.findings import examples
from t5x_harness.spec import Finding, Mode, RunSpec, Severity, Stage
from t5x_harness.workers import Zygote

SPLIT = "train/utils.DatasetConfig.split"
SAVE = "utils.CheckpointConfig.save"
DECAY = "adafactor.Adafactor.decay_rate"
OPTIMIZER = "models.EncoderDecoderModel.optimizer_def"
DECODE = "models.EncoderDecoderModel.decode_fn"
CONVERTER = "models.EncoderDecoderModel.feature_converter_cls"

# The config's mode, the line that is added, and what is said of it.
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
CONFIGS = {Mode.TRAIN: examples.trained(), Mode.EVAL: examples.evaluated(_SPLIT), Mode.INFER: examples.inferred(_SPLIT)}


def errors_of(zygote: Zygote, folder: Path, gin: str) -> list[Finding]:
    for name, text in {**examples.FILES, "run.gin": gin}.items():
        (folder / name).write_text(text, encoding="utf-8")
    spec = RunSpec(("run.gin",), runtime=t5x_in_use.name, python_path=(str(folder),), cwd=str(folder))
    with LocalRun(spec, zygote=zygote, workspace=folder / "run", timeout=120) as backend:
        return [
            finding
            for stage in (Stage.RESOLVE, Stage.PLAN)
            for finding in backend.stage(stage).findings
            if finding.severity is Severity.ERROR
        ]


@pytest.mark.parametrize(("mode", "line", "says"), CASES, ids=[line.splitlines()[-1] for _, line, _ in CASES])
def test_the_binding_is_named(zygote: Zygote, tmp_path: Path, mode: Mode, line: str, says: str) -> None:
    gin = f"{CONFIGS[mode]}{line}\n"
    errors = errors_of(zygote, tmp_path, gin)
    assert [error.code for error in errors] == ["RUN01"]
    (error,) = errors
    assert says in error.message
    assert error.location is not None
    assert str(error.location) == f"run.gin:{len(gin.splitlines())}"
    assert error.fix
