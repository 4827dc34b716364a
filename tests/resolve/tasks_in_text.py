"""Modules with tasks, as text that a test writes to files, and the findings of resolving them."""

from collections.abc import Callable

import pytest

from t5x_harness.findings.rule import TASK
from t5x_harness.spec import Finding, StageResult

Resolve = Callable[..., StageResult]
Find = Callable[..., Finding]

READ = "tf.data.Dataset.from_tensor_slices({'inputs': ['one two', 'three'], 'targets': ['1 2', '3']})"
SOURCE = "seqio.FunctionDataSource(examples, splits=('train', 'validation'))"
STEPS = "[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]"
GENERATOR = (
    "tf.data.Dataset.from_generator({function}, output_signature={{'inputs': tf.TensorSpec([], tf.string), "
    "'targets': tf.TensorSpec([], tf.string)}})"
)

INFER_EVAL = """
train_script.train.infer_eval_dataset_cfg = @infer_eval/utils.DatasetConfig()
infer_eval/utils.DatasetConfig:
  mixture_or_task_name = %MIXTURE_OR_TASK_NAME
  task_feature_lengths = None
  split = 'validation'
  batch_size = 8
  shuffle = False
  seed = 42
"""
"""Gin text for evaluation by inference during training."""


def module(*replaced: tuple[str, str], before: str = "", after: str = "") -> dict[str, str]:
    """Returns the module ``counting.py`` of the rules' examples, with parts of its text replaced and text around it."""
    text = TASK
    for old, new in replaced:
        assert old in text, old
        text = text.replace(old, new)
    return {"counting.py": f"{before}{text}{after}"}


def of(result: StageResult, code: str) -> Finding:
    """Returns the only finding of a code."""
    (finding,) = (f for f in result.findings if f.code == code)
    return finding


def raised(function: Callable[[], object]) -> Exception:
    """Returns the exception that a function raises."""
    try:
        function()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")
