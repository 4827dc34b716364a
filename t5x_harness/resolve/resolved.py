"""A config's objects, as the run would build them, and what was read of its data."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio

from t5x_harness.resolve.datasets import DataRole, Sample
from t5x_harness.resolve.gin_config import BindingKey, GinConfig

__all__ = ["Resolved", "describe_vocabulary", "embedding_rows", "lengths_of"]


@dataclasses.dataclass
class Resolved:
    """A config's objects, as the run would build them.

    Attributes:
      config: the parsed config.
      model: T5X's model.
      roles: its datasets.
      tasks: the tasks of each role, by the role's parameter.
      samples: what was read, by role's parameter and task name.
    """

    config: GinConfig
    model: Any
    roles: list[DataRole] = dataclasses.field(default_factory=list)
    tasks: dict[str, Sequence[seqio.Task]] = dataclasses.field(default_factory=dict)
    samples: dict[tuple[str, str], Sample] = dataclasses.field(default_factory=dict)

    def sampled(self) -> Iterator[tuple[DataRole, Sample]]:
        """Every sample with the role that it was read for."""
        for role in self.roles:
            for task in self.tasks.get(role.parameter, ()):
                if sample := self.samples.get((role.parameter, task.name)):
                    yield role, sample


def embedding_rows(model: Any, config: GinConfig) -> tuple[int | None, BindingKey | None]:
    """Rows of the model's token embedding and the binding that sets them; None where neither can be read."""
    key = config.find("vocab_size") or config.find("num_embeddings")
    rows = getattr(getattr(getattr(model, "module", None), "config", None), "vocab_size", None)
    if rows is None and key:
        rows = config.value(config.owner(key))
    return (rows if isinstance(rows, int) else None), (config.owner(key) if key else None)


def describe_vocabulary(vocabulary: seqio.Vocabulary) -> str:
    """A vocabulary by what tells it from others: kind, file, size, extra ids."""
    parts = [f"{vocabulary.vocab_size} ids"]
    extra = getattr(vocabulary, "extra_ids", 0)
    if extra:
        parts.append(f"{extra} extra")
    for name in ("sentencepiece_model_file", "_sentencepiece_model_file", "vocab_file"):
        file = inspect.getattr_static(vocabulary, name, None) or vars(vocabulary).get(name)
        if isinstance(file, str):
            parts.append(file)
            break
    return f"{type(vocabulary).__name__} ({', '.join(parts)})"


def lengths_of(
    role: DataRole, samples: Mapping[tuple[str, str], Sample], tasks: Sequence[seqio.Task]
) -> dict[str, int]:
    """The feature lengths of a dataset: those given, or what the sample's longest examples need."""
    if role.dataset.task_feature_lengths is not None:
        return dict(role.dataset.task_feature_lengths)
    found: dict[str, int] = {}
    for task in tasks:
        if sample := samples.get((role.parameter, task.name)):
            for feature in task.output_features:
                found[feature] = max(found.get(feature, 0), sample.longest(feature))
    return found
