"""Modules with tasks, as text that a test writes out."""

from __future__ import annotations

from t5x_harness.findings import examples

__all__ = ["GENERATOR", "INFER_EVAL", "READ", "SOURCE", "STEPS", "module"]

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
"""Gin text that evaluates by inference, too."""


def module(*replaced: tuple[str, str], before: str = "", after: str = "") -> dict[str, str]:
    """The module ``counting.py`` of the rules' examples, with parts of its text replaced and text around it."""
    text = examples.TASK
    for old, new in replaced:
        assert old in text, old
        text = text.replace(old, new)
    return {"counting.py": f"{before}{text}{after}"}
