"""The data that a config names: which dataset plays which part, its tasks, and a bounded sample of each."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf
from t5x import utils

from t5x_harness.resolve.gin_config import BindingKey, GinConfig
from t5x_harness.spec import Mode

__all__ = ["EXAMPLES", "DataRole", "Sample", "few_examples", "roles_of", "sample_of", "tasks_of", "vocabulary_ids"]

EXAMPLES = 16
"""Examples read of each task and split to judge it."""

TASKS = 6
"""Tasks of a mixture that are sampled."""

_PARAMETERS: dict[Mode, tuple[str, ...]] = {
    Mode.TRAIN: ("train_dataset_cfg", "train_eval_dataset_cfg", "infer_eval_dataset_cfg"),
    Mode.EVAL: ("dataset_cfg",),
    Mode.INFER: ("dataset_cfg",),
}


@dataclasses.dataclass(frozen=True)
class DataRole:
    """A dataset of the run and the part that it plays.

    Attributes:
      parameter: the entry point's parameter that it is bound to, such as ``train_dataset_cfg``.
      scope: the scope in which the config binds it, such as ``train``.
      dataset: T5X's DatasetConfig.
    """

    parameter: str
    scope: str
    dataset: utils.DatasetConfig

    @property
    def name(self) -> str:
        """In words: ``train``, ``train_eval``, ``infer_eval`` or ``dataset``."""
        return self.parameter.removesuffix("_cfg").removesuffix("_dataset") or self.parameter

    @property
    def source(self) -> str:
        """The task or mixture's name."""
        name = self.dataset.mixture_or_task_name
        return name if isinstance(name, str) else getattr(name, "name", type(name).__name__)

    def key(self, config: GinConfig, parameter: str) -> BindingKey | None:
        """The binding that one of its parameters comes from, macros followed."""
        key = config.find(parameter, "DatasetConfig", self.scope)
        return config.owner(key) if key else None


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a few examples of one task and split look like.

    Attributes:
      task: the task.
      split: the split.
      examples: what was read, at most :data:`EXAMPLES`; features as arrays.
      whole: whether features have their full lengths; otherwise the task cuts them itself.
    """

    task: seqio.Task
    split: str
    examples: tuple[Mapping[str, Any], ...]
    whole: bool

    def longest(self, feature: str) -> int:
        """Tokens of the longest value of a feature; 0 without examples."""
        return max((len(e[feature]) for e in self.examples if feature in e and e[feature].ndim), default=0)

    def truncated(self, feature: str, length: int) -> float:
        """The share of examples whose feature is longer than a length."""
        lengths = [len(e[feature]) for e in self.examples if feature in e and e[feature].ndim]
        return sum(n > length for n in lengths) / len(lengths) if lengths else 0.0


def roles_of(config: GinConfig) -> list[DataRole]:
    """The datasets of the run, those that are bound to a DatasetConfig, in T5X's order."""
    roles = []
    for parameter in _PARAMETERS[config.mode]:
        dataset = config.build(parameter)
        if isinstance(dataset, utils.DatasetConfig):
            roles.append(DataRole(parameter, config.scope_of(parameter) or "", dataset))
    return roles


def tasks_of(role: DataRole) -> Sequence[seqio.Task]:
    """The tasks behind a dataset, those of a mixture one by one.

    Raises:
      ValueError: nothing is registered under this name.
    """
    provider = role.dataset.mixture_or_task_name
    if isinstance(provider, str):
        provider = seqio.get_mixture_or_task(provider)
    tasks: Sequence[seqio.Task] = seqio.get_subtasks(provider)
    return tasks


def sample_of(role: DataRole, task: seqio.Task) -> Sample:
    """Reads a few examples of a task as the run would, but uncut where the task allows it.

    Raises:
      Exception: whatever the task's source and preprocessors raise.
    """
    dataset = role.dataset
    read = functools.partial(
        task.get_dataset,
        split=dataset.split,
        use_cached=dataset.use_cached,
        shuffle=False,
        seed=dataset.seed,
        num_epochs=1,
    )

    def first(lengths: Mapping[str, int] | None) -> tuple[Mapping[str, Any], ...]:
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        return tuple(read(lengths).take(EXAMPLES).with_options(options).as_numpy_iterator())

    if dataset.task_feature_lengths is None:
        return Sample(task, dataset.split, first(None), whole=True)
    try:
        return Sample(task, dataset.split, first(None), whole=True)
    except Exception:  # any preprocessor may need the lengths, and says so in its own way
        return Sample(task, dataset.split, first(dict(dataset.task_feature_lengths)), whole=False)


def vocabulary_ids(model: Any) -> int | None:
    """Ids that the model's vocabularies can produce; None if it has none or they cannot be read."""
    found = [getattr(model, name, None) for name in ("input_vocabulary", "output_vocabulary")]
    sizes = [v.vocab_size for v in found if isinstance(v, seqio.Vocabulary)]
    return max((n for n in sizes if n), default=None)


@contextlib.contextmanager
def few_examples(tasks: Sequence[seqio.Task], number: int | None) -> Iterator[None]:
    """Lets tasks give only their first examples to whatever reads them once, as evaluation and inference do.

    Training, which repeats its data, still reads everything.

    Args:
      tasks: registered tasks; restored afterwards.
      number: examples of each; None for all.
    """
    if number is None:
        yield
        return
    limited = []
    try:
        for task in {id(t): t for t in tasks}.values():
            whole = task.get_dataset

            def get_dataset(*args: Any, _whole: Any = whole, **kwargs: Any) -> tf.data.Dataset:
                dataset = _whole(*args, **kwargs)
                return dataset.take(number) if kwargs.get("num_epochs", 1) == 1 else dataset

            task.get_dataset = get_dataset
            limited.append(task)
        yield
    finally:
        for task in limited:
            del task.get_dataset
