"""The stand-ins of one run, in its process: they replace what is out of reach, and are recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import seqio

from t5x_harness.buckets.reach import is_replaced
from t5x_harness.gin.program import GinProgram
from t5x_harness.lint.t5_package import TASKS
from t5x_harness.spec import Change, Changed, Reason, RunSpec, StandInPolicy
from t5x_harness.standins import sources, t5_package
from t5x_harness.standins.rows import RowsRequest, Samples, install_rows
from t5x_harness.standins.vocabularies import VocabularyFiles, is_published
from t5x_harness.upstream.seqio import vocabulary_file

if TYPE_CHECKING:
    from t5x.utils import DatasetConfig

_GENERATED = "examples generated from its features"
_LOADED = "rows declared for load_dataset"


class StandIns:
    """The stand-ins that are generated for a run.

    Args:
      spec: the spec of the run, with its policy and declared rows.
      folder: the folder for generated files; no other run uses it. What it has already is not generated again.
      rows: the number of rows of the model's embedding; None if it is not known.

    Attributes:
      folder: the argument, as is ``rows``.
    """

    def __init__(self, spec: RunSpec, folder: Path, rows: int | None) -> None:
        self.folder = folder
        self.rows = rows
        self._policy = spec.settings.standins
        self._samples = [Samples.from_text(text) for text in spec.settings.samples]
        self._changes: list[Change] = []
        self._not_checked: list[str] = []
        self._seen: set[str] = set()
        self._noted: set[Change] = set()
        self._loads_rows = False
        self._sources: dict[str, str] = {}
        self._uncached: set[str] = set()
        self._of_tfds: set[str] = set()
        self._vocabularies = VocabularyFiles(folder / "vocabularies", self._policy, rows, self._note_vocabulary)

    def install(self) -> None:
        """Makes stand-ins provide vocabularies and datasets. It is called before the user's modules load any."""
        self._vocabularies.install()
        install_rows(self._samples, self._policy, self._note_hugging_face)
        t5_package.install(self._policy, self._note_t5)

    def take_places(self, dataset: DatasetConfig, tasks: Iterable[seqio.Task]) -> Sequence[RowsRequest]:
        """Gives the tasks of a dataset the user's rows, or generated TFDS data if their own data is missing.

        Args:
          dataset: a dataset of the config.
          tasks: its tasks; each is changed once.

        Returns:
          The requests for rows of tasks that read files out of reach.

        Raises:
          ValueError: a task's declared rows cannot be made into tensors.
        """
        requests: list[RowsRequest] = []
        for task in tasks:
            if task.name in self._seen:
                continue
            self._seen.add(task.name)
            if isinstance(task.source, seqio.TfdsDataSource):
                self._of_tfds.add(task.name)
            if samples := next((s for s in self._samples if s.name == task.name), None):
                sources.put_rows(task, samples)
                self._sources[task.name] = f"{samples.number} declared rows"
                self._add("source of task", repr(task.name), self._sources[task.name])
            elif isinstance(task.source, seqio.TfdsDataSource):
                batch = dataset.batch_size
                made = sources.generate_tfds(
                    task.source, self.folder / "tfds", self._policy, batch if isinstance(batch, int) else 0
                )
                for one in made:
                    self._note_tfds(task.name, one)
            elif self._policy is not StandInPolicy.OFF and (remote := sources.out_of_reach(task, dataset.split)):
                why = f"task {task.name} reads {remote[0]}, which is out of reach here, and no rows are declared for it"
                fix = (
                    f'give a few in [tool.t5x_harness.samples] of pyproject.toml, {task.name} = "rows.jsonl", or in a '
                    "test with the fixture sample_rows; or give the bucket, --gcs-root (pytest: --t5x-gcs-root)"
                )
                requests.append(RowsRequest(why, fix))
            if dataset.use_cached and task.supports_caching:
                self._read_uncached(task)
        return requests

    def source_of(self, task: seqio.Task) -> str | None:
        """Describes what a task reads here instead of its own source; returns None if it reads its own.

        Whether the user's function reads declared rows through ``load_dataset`` is known only after it has been called.
        """
        loaded = _LOADED if self._loads_rows and isinstance(task.source, seqio.FunctionDataSource) else None
        return self._sources.get(task.name, loaded)

    def are_tokens_generated(self, task: seqio.Task) -> bool:
        """Tells whether a task's examples or its vocabulary's pieces are generated, so that lengths mean nothing."""
        return self._sources.get(task.name) == _GENERATED or any(
            self.is_vocabulary_generated(feature.vocabulary) for feature in task.output_features.values()
        )

    def has_generated_size(self, task: seqio.Task) -> bool:
        """Tells whether a task's number of examples is generated: TFDS takes it from the data."""
        return task.name in self._of_tfds and task.name in self._sources

    def is_uncached(self, task: seqio.Task) -> bool:
        """Tells whether a task's cache is out of reach, so that its examples are preprocessed as they are read."""
        return task.name in self._uncached

    def is_vocabulary_generated(self, vocabulary: seqio.Vocabulary) -> bool:
        """Tells whether a vocabulary is read from a generated file, so that its pieces mean nothing."""
        file = vocabulary_file(vocabulary)
        return file is not None and self._vocabularies.replaces(file)

    def take_changes(self) -> Sequence[Change]:
        """Returns records of what was generated since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def take_doubts(self) -> Sequence[str]:
        """Returns what could not be judged since the last call, because data was generated or could not be."""
        doubts, self._not_checked = self._not_checked, []
        return doubts

    def _read_uncached(self, task: seqio.Task) -> None:
        """Makes a task read without its cache if the cache cannot be reached or does not have the user's rows."""
        folders = [str(folder) for folder in seqio.get_global_cache_dirs()]
        remote = next((folder for folder in folders if is_replaced(folder, self._policy)), None)
        declared = any(samples.name == task.name for samples in self._samples)
        if not declared and (remote is None or sources.cache_of(task)):
            return
        sources.read_uncached(task)
        self._uncached.add(task.name)
        if remote:
            self._add("cached examples of task", f"{task.name} in {remote}", "preprocessed as they are read")
            self._doubt(f"whether {task.name} is cached in {remote}, and by the preprocessors that it has now")

    def _note_tfds(self, task: str, dataset: sources.GeneratedTfds) -> None:
        if dataset.problem:
            self._doubt(f"the data of {task}: no examples of {dataset.name} can be generated: {dataset.problem}")
            return
        self._sources[task] = _GENERATED
        where = f" in {dataset.folder}" if dataset.folder else ""
        self._add(f"TFDS data of task {task}", f"{dataset.name}{where}", _GENERATED)
        self._doubt(
            f"whether {dataset.name} is prepared{where or ' where the job runs'}, and what its examples are like"
        )

    def _note_vocabulary(self, path: str, what: str) -> None:
        self._add("vocabulary", repr(path), what, Changed.VOCABULARY)
        guessed = "" if is_published(path) else "how many there are, which is guessed by its name and the model, "
        self._doubt(f"the pieces of {path}: {guessed}how many tokens a text has, and so what is truncated")

    def _note_t5(self) -> None:
        self._add("package", "t5", f"stand-ins for {len(TASKS)} of its tasks")
        self._doubt(
            "whether the package t5 is installed where the job runs, and what its own preprocessors and metrics make "
            "of the tasks that have stand-ins"
        )

    def _note_hugging_face(self, dataset: str, what: str) -> None:
        self._loads_rows = True
        self._add("load_dataset", repr(dataset), what)

    def _doubt(self, what: str) -> None:
        if what not in self._not_checked:
            self._not_checked.append(what)

    def _add(self, name: str, before: str, after: str, what: Changed = Changed.DATA) -> None:
        change = Change(name, before, after, Reason.STANDIN, what)
        if change not in self._noted:
            self._noted.add(change)
            self._changes.append(change)


def rows_in_text(program: GinProgram) -> int | None:
    """Returns the number of rows of the model's embedding according to the config, or None if it does not say."""
    values = [program.resolve(b).value for b in program.final_bindings if b.param in ("vocab_size", "num_embeddings")]
    return max((value for value in values if isinstance(value, int)), default=None)
