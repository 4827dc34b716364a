"""A config's objects, as the run would build them, and what was read of its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.endings import SourceEnd
from t5x_harness.resolve.registrations import Registrations
from t5x_harness.resolve.samples import Sample
from t5x_harness.spec import Mode
from t5x_harness.standins.run import StandIns
from t5x_harness.standins.task_data import declared_size
from t5x_harness.standins.vocabularies import is_published
from t5x_harness.upstream.seqio import metric_functions, metric_objects, vocabulary_file


@dataclasses.dataclass
class Resolved:
    """A config's objects, as the run would build them.

    Attributes:
      config: the parsed config.
      model: T5X's model.
      roles: its datasets.
      tasks: the tasks of each role, by the role's parameter.
      samples: what was read, by role's parameter and task name.
      endings: where the end of a source was looked for, by task name and split: what is read to its end.
      registrations: the lines that registered the tasks.
      standins: what was generated of the data.
    """

    config: GinConfig
    model: Any
    roles: list[DataRole] = dataclasses.field(default_factory=list)
    tasks: dict[str, Sequence[seqio.Task]] = dataclasses.field(default_factory=dict)
    samples: dict[tuple[str, str], Sample] = dataclasses.field(default_factory=dict)
    endings: dict[tuple[str, str], SourceEnd] = dataclasses.field(default_factory=dict)
    registrations: Registrations = dataclasses.field(default_factory=Registrations)
    standins: StandIns | None = None

    def standin_source(self, task: seqio.Task) -> str | None:
        """Returns what a task reads here instead of its own source, in words.

        How many examples that has says nothing.
        """
        return self.standins.source_of(task) if self.standins else None

    def has_generated_tokens(self, task: seqio.Task) -> bool:
        """Returns whether the number of tokens in a task's examples says nothing of the job."""
        return self.standins is not None and self.standins.are_tokens_generated(task)

    def has_generated_size(self, task: seqio.Task) -> bool:
        """Returns whether how many examples a task says to have is nothing of the job's."""
        return self.standins is not None and self.standins.has_generated_size(task)

    def is_uncached(self, task: seqio.Task) -> bool:
        """Tells whether a task's examples are preprocessed as they are read, though the run wants them from a cache."""
        return self.standins is not None and self.standins.is_uncached(task)

    def is_vocabulary_generated(self, vocabulary: seqio.Vocabulary) -> bool:
        """Returns whether the pieces of a vocabulary say nothing of the job's."""
        return self.standins is not None and self.standins.is_vocabulary_generated(vocabulary)

    def is_vocabulary_guessed(self, vocabulary: seqio.Vocabulary) -> bool:
        """Returns whether not even a generated vocabulary's size is known.

        It is read off the file's name, or the model.
        """
        return self.is_vocabulary_generated(vocabulary) and not is_published(vocabulary_file(vocabulary) or "")

    def source_size(self, role: DataRole, task: seqio.Task) -> int | None:
        """Returns how many examples a task's source has in a role's split, before preprocessing.

        The source's own account comes first. Without one, it is known where the split is so small that every example
        of it was read and kept; how much of a larger one is read depends on the machine's speed. None otherwise, and
        for a generated source.
        """
        if self.standin_source(task):
            return None
        sample = self.samples.get((role.parameter, task.name))
        counted = sample.source_size if sample is not None and sample.is_all else None
        return declared_size(task, role.dataset.split) or counted

    def sampled(self) -> Iterator[tuple[DataRole, Sample]]:
        """Yields every sample with the role that it was read for."""
        for role in self.roles:
            for task in self.tasks.get(role.parameter, ()):
                if sample := self.samples.get((role.parameter, task.name)):
                    yield role, sample

    def is_read_to_the_end(self, role: DataRole, task: seqio.Task) -> bool:
        """Returns whether the run goes through all examples of a task: to evaluate its predictions, or to infer."""
        if self.config.mode is Mode.INFER:
            return True
        return self.is_evaluated(role, task) and not self._evaluated_examples()

    def is_evaluated(self, role: DataRole, task: seqio.Task) -> bool:
        """Returns whether SeqIO's evaluator reads a task: it leaves out those without metrics."""
        return self.has_evaluator(role) and bool(metric_functions(task) or metric_objects(task))

    def has_evaluator(self, role: DataRole) -> bool:
        """Returns whether a dataset goes to SeqIO's evaluator, which evaluates predictions."""
        return self.config.mode is Mode.EVAL or role.name == "infer_eval"

    @property
    def verifies_vocabularies(self) -> bool:
        """Whether T5X stops where the tasks' vocabularies are not the model's: unless the config leaves that out."""
        bound = self.config.entry_bindings()
        left_out = "verify_matching_vocabs_fn" in bound and bound["verify_matching_vocabs_fn"] is None
        return not left_out or self.config.mode is Mode.EVAL

    def _evaluated_examples(self) -> int | None:
        key = self.config.find("num_examples", "Evaluator")
        return self.config.value(self.config.owner(key)) if key else None


def embedding_rows(model: Any, config: GinConfig) -> tuple[int | None, BindingKey | None]:
    """Rows of the model's token embedding and the binding that sets them; None where neither can be read."""
    key = config.find("vocab_size") or config.find("num_embeddings")
    rows = getattr(getattr(getattr(model, "module", None), "config", None), "vocab_size", None)
    if rows is None and key:
        rows = config.value(config.owner(key))
    return (rows if isinstance(rows, int) else None), (config.owner(key) if key else None)


def lengths_of(
    role: DataRole, samples: Mapping[tuple[str, str], Sample], tasks: Sequence[seqio.Task]
) -> dict[str, int]:
    """Returns the feature lengths of a dataset: those given, or what the sample's longest examples need."""
    if role.dataset.task_feature_lengths is not None:
        return dict(role.dataset.task_feature_lengths)
    found: dict[str, int] = {}
    for task in tasks:
        if sample := samples.get((role.parameter, task.name)):
            for feature in task.output_features:
                found[feature] = max(found.get(feature, 0), sample.longest(feature))
    return found
