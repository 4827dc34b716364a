"""The tiny task and configs that the examples of rules start from: each rule shows only the differences."""

from __future__ import annotations

from typing import Any

from t5x_harness.findings.rule import Example

TASK = """\
import seqio
import tensorflow as tf


def examples(split, shuffle_files=False, seed=None):
    return tf.data.Dataset.from_tensor_slices({'inputs': ['one two', 'three'], 'targets': ['1 2', '3']})


def exact(targets, predictions):
    return {'exact': float(targets == predictions)}


FEATURE = seqio.Feature(seqio.ByteVocabulary())

seqio.TaskRegistry.add(
    'counting',
    source=seqio.FunctionDataSource(examples, splits=('train', 'validation')),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={'inputs': FEATURE, 'targets': FEATURE},
    metric_fns=[exact],
)
"""
"""A module ``counting.py`` with a task of two examples."""

FILES = {"counting.py": TASK}

FOLDER = "/path/to"
"""A placeholder for the folder of the example's files."""

_HEAD = """\
from __gin__ import dynamic_registration
import __main__ as {mode}_script
import seqio
from t5x import partitioning
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/{run}.gin'
import counting
MIXTURE_OR_TASK_NAME = 'counting'
TASK_FEATURE_LENGTHS = {{'inputs': 32, 'targets': 32}}
DROPOUT_RATE = 0.0
VOCABULARY = @seqio.ByteVocabulary()
network.T5Config.vocab_size = 384
"""
_TRAIN = (
    _HEAD.format(mode="train", run="pretrain") + "TRAIN_STEPS = 10_000\nBATCH_SIZE = 128\nUSE_CACHED_TASKS = False\n"
)
_EVAL = _HEAD.format(mode="eval", run="eval")
_INFER = _HEAD.format(mode="infer", run="infer")


BASES = {
    "The task module": TASK,
    "The train config": _TRAIN,
    "The eval config": _EVAL,
    "The infer config": _INFER,
}
"""The files that examples start from, by their headings in the pages of rules, which print each once."""


def head(run: str, *imports: str, model: str = "tiny") -> str:
    """Returns the beginning of a config: imports, if any, a model's file and one of T5X's run configs."""
    lines = ["from __gin__ import dynamic_registration", *imports] if imports else []
    lines += [f"include 't5x/examples/t5/t5_1_1/{model}.gin'", f"include 't5x/configs/runs/{run}.gin'"]
    return "".join(f"{line}\n" for line in lines)


def files(before: str = "", after: str = "", /) -> dict[str, str]:
    """Returns the task's module, with one piece of its text replaced.

    Raises:
      ValueError: the module does not contain the text.
    """
    if before not in TASK:
        raise ValueError(f"the task's module has no {before!r}")
    return {"counting.py": TASK.replace(before, after)}


def trained(*lines: str) -> str:
    """Returns a train config that ends with these lines."""
    return _TRAIN + "".join(f"{line}\n" for line in lines)


def restored_from(path: str) -> tuple[str, ...]:
    """Returns the lines of a train config that starts from a checkpoint in the example's folder."""
    return (
        f"utils.RestoreCheckpointConfig.path = '{FOLDER}/{path}'",
        "utils.RestoreCheckpointConfig.mode = 'specific'",
        "utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()",
    )


def training(*lines: str, **parts: Any) -> Example:
    """Returns an example of a train config that ends with these lines; its files are the task's module by default."""
    return Example(trained(*lines), **{"files": FILES, **parts})


def evaluating(*lines: str, **parts: Any) -> Example:
    """Returns an example of an eval config; see :func:`training`."""
    return Example(evaluated(*lines), **{"files": FILES, **parts})


def inferring(*lines: str, **parts: Any) -> Example:
    """Returns an example of an infer config; see :func:`training`."""
    return Example(inferred(*lines), **{"files": FILES, **parts})


def evaluated(*lines: str) -> str:
    """Returns an eval config that ends with these lines."""
    return _EVAL + "".join(f"{line}\n" for line in lines)


def inferred(*lines: str) -> str:
    """Returns an infer config that ends with these lines."""
    return _INFER + "".join(f"{line}\n" for line in lines)
