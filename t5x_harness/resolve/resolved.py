"""A config's objects, as the run would build them: the model's sizes, its datasets and mixtures, and sampled data."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.datasets import DataRole, Registrations
from t5x_harness.resolve.samples import Sample, SourceEnd
from t5x_harness.spec import Mode
from t5x_harness.standins.run import StandIns
from t5x_harness.standins.sources import declared_size
from t5x_harness.standins.vocabularies import is_published
from t5x_harness.upstream.seqio import metric_functions, metric_objects, vocabulary_file

# The names under which models keep their sizes: T5X's examples, flaxformer's macros, and the usual others.
HEADS = frozenset({"num_heads", "n_heads", "num_attention_heads"})
KV_HEADS = frozenset({"num_kv_heads", "num_key_value_heads", "n_kv_heads"})
HEAD_DIM = frozenset({"head_dim", "d_kv", "kv_dim", "key_dim"})
WIDTH = frozenset({"emb_dim", "embed_dim", "embedding_dim", "d_model", "hidden_size", "model_dim"})
MLP = frozenset({"mlp_dim", "d_ff", "intermediate_dim", "intermediate_size", "ffn_dim", "mlp_size"})
LAYERS = frozenset({"num_layers", "n_layers", "num_encoder_layers", "num_decoder_layers", "num_hidden_layers"})
EMBEDDING_ROWS = frozenset({"vocab_size", "num_embeddings"})


@dataclasses.dataclass
class Resolved:
    """A config's objects, as the run would build them.

    Attributes:
      config: the parsed config.
      model: T5X's model.
      standins: the generated replacements for data.
      registrations: the lines that registered the tasks.
      roles: the datasets that the run reads.
      tasks: the tasks of each role, by the role's parameter.
      samples: the examples that were read, by the role's parameter and the task's name.
      ends: the results of reading sources to find their ends, by the task's name and the split.
    """

    config: GinConfig
    model: Any
    standins: StandIns
    registrations: Registrations
    roles: list[DataRole] = dataclasses.field(default_factory=list)
    tasks: dict[str, Sequence[seqio.Task]] = dataclasses.field(default_factory=dict)
    samples: dict[tuple[str, str], Sample] = dataclasses.field(default_factory=dict)
    ends: dict[tuple[str, str], SourceEnd] = dataclasses.field(default_factory=dict)

    def is_vocabulary_guessed(self, vocabulary: seqio.Vocabulary) -> bool:
        """Tells whether a vocabulary is generated and even its size is guessed from the file's name or the model."""
        generated = self.standins.is_vocabulary_generated(vocabulary)
        return generated and not is_published(vocabulary_file(vocabulary) or "")

    def source_size(self, role: DataRole, task: seqio.Task) -> int | None:
        """Returns the number of examples that a task's source has in a role's split, before preprocessing.

        The source's own figure comes first. Without one, the size is known only if the split is so small that
        every example was read and kept: how much of a larger split is read depends on the machine's speed. Returns None
        otherwise, and for a generated source.
        """
        if self.standins.source_of(task):
            return None
        sample = self.samples.get((role.parameter, task.name))
        counted = sample.source_size if sample is not None and sample.is_all else None
        return declared_size(task, role.dataset.split) or counted

    def reads(self) -> Iterator[tuple[DataRole, seqio.Task]]:
        """Yields every task with the dataset that reads it."""
        for role in self.roles:
            for task in self.tasks.get(role.parameter, ()):
                yield role, task

    def sampled(self) -> Iterator[tuple[DataRole, Sample]]:
        """Yields every sample with the role for which it was read."""
        for role, task in self.reads():
            if sample := self.samples.get((role.parameter, task.name)):
                yield role, sample

    def is_read_to_the_end(self, role: DataRole, task: seqio.Task) -> bool:
        """Tells whether the run reads all examples of a task, to evaluate its predictions or to infer."""
        if self.config.mode is Mode.INFER:
            return True
        limit = self.config.value(self.config.owner(self.config.find("num_examples", "Evaluator")))
        return self.is_evaluated(role, task) and not limit

    def is_evaluated(self, role: DataRole, task: seqio.Task) -> bool:
        """Tells whether SeqIO's evaluator reads a task; it skips tasks without metrics."""
        return self.has_evaluator(role) and bool(metric_functions(task) or metric_objects(task))

    def has_evaluator(self, role: DataRole) -> bool:
        """Tells whether a dataset goes to SeqIO's evaluator, which evaluates predictions."""
        return self.config.mode is Mode.EVAL or role.name == "infer_eval"

    @property
    def verifies_vocabularies(self) -> bool:
        """Whether T5X checks that tasks and model have the same vocabularies; a config can turn the check off."""
        bound = self.config.entry_bindings()
        left_out = "verify_matching_vocabs_fn" in bound and bound["verify_matching_vocabs_fn"] is None
        return not left_out or self.config.mode is Mode.EVAL

    @property
    def embedding_rows(self) -> tuple[int | None, BindingKey | None]:
        """The number of rows of the model's token embedding, and the binding that sets it; each is None if unknown."""
        key = self.config.owner(self.config.find("vocab_size") or self.config.find("num_embeddings"))
        rows = getattr(getattr(getattr(self.model, "module", None), "config", None), "vocab_size", None)
        rows = self.config.value(key) if rows is None else rows
        return (rows if isinstance(rows, int) else None), key

    def lengths_of(self, role: DataRole, tasks: Sequence[seqio.Task]) -> dict[str, int]:
        """Returns the feature lengths that a dataset is given, or else the lengths of the longest sampled examples."""
        if role.dataset.task_feature_lengths is not None:
            return dict(role.dataset.task_feature_lengths)
        found: dict[str, int] = {}
        for task in tasks:
            if sample := self.samples.get((role.parameter, task.name)):
                for feature in task.output_features:
                    found[feature] = max(found.get(feature, 0), sample.longest(feature))
        return found

    def mixtures(self) -> Iterator[tuple[seqio.Mixture, str]]:
        """Yields every mixture whose examples the run mixes, with the split.

        Only training mixes: evaluation and inference read each task alone.
        """
        mixed = [r for r in self.roles if self.config.mode is Mode.TRAIN and not self.has_evaluator(r)]
        providers = {(role.source, role.dataset.split): role.provider for role in mixed}
        for (_, split), provider in providers.items():
            if isinstance(provider, seqio.Mixture):
                yield provider, split

    def rates(self, mixture: seqio.Mixture, split: str) -> Mapping[str, float | Exception]:
        """Returns the rate of each task that has the split, by name, or the exception that computing it raised."""
        rates: dict[str, float | Exception] = {}
        for task in mixture.tasks:
            if split in task.splits:
                try:
                    rates[task.name] = float(mixture.get_rate(task))
                except Exception as error:  # a rate may be any function that the user wrote
                    rates[task.name] = error
        return rates


def bound_integers(config: GinConfig, names: frozenset[str]) -> Iterator[tuple[BindingKey, int]]:
    """Yields each literal integer that is bound to a parameter or macro of one of these names, once.

    Args:
      config: the parsed config.
      names: the names, in lower case.
    """
    seen = set()
    for key in config:
        name = key.scope.split("/")[-1] if key.is_macro else key.parameter
        owner = config.owner(key)
        value = config.value(owner)
        if name.lower() in names and owner not in seen and isinstance(value, int) and not isinstance(value, bool):
            seen.add(owner)
            yield owner, value
