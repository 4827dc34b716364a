"""The data that a config names: datasets and their roles, tasks and their lines, vocabularies, TFDS data."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import seqio
import tensorflow as tf
from t5x import utils

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.exceptions import shown_path
from t5x_harness.spec import Location, Mode
from t5x_harness.standins.sources import out_of_reach
from t5x_harness.upstream.seqio import builder_of, preprocessors, vocabulary_file, watch_registrations

_Registering = tuple[Location, str]
"""A line that registers something, and the name under which its module is imported."""


class DuplicateRegistration(ValueError):
    """SeqIO refuses a name that is already registered; this error adds the lines of both registrations.

    Attributes:
      location: the line that is refused.
      has_two_names: whether one module runs twice because it is imported under two names.
      message: a description of what happened, with both lines.
      fix: the smallest fix.
    """

    def __init__(self, text: str, name: str, first: _Registering, second: _Registering) -> None:
        super().__init__(text)
        (at, module), (self.location, again) = first, second
        self.has_two_names = at.file == self.location.file and module != again
        if self.has_two_names:
            how = f"{at.file} is imported under two names, {module} and {again}"
            self.fix = f"import it under one name only, {module} or {again}"
        else:
            how = f"at {at}, and again {'by the same line' if at == self.location else f'at {self.location}'}"
            self.fix = "register it once, or give the second one a name of its own"
        self.message = f"{name} is registered twice: {how}"


class Registrations:
    """The lines that registered tasks and mixtures since :meth:`record` was called."""

    def __init__(self) -> None:
        self._places: dict[str, _Registering] = {}

    @classmethod
    def record(cls) -> Registrations:
        """Watches SeqIO's registries for the lifetime of the process; all runs in it share one object."""
        watch_registrations(_OF_PROCESS._register)
        return _OF_PROCESS

    def _register(self, name: str, frame: FrameType, register: Callable[[], None]) -> None:
        place = _place(frame)
        try:
            register()
        except ValueError as error:
            if name in self._places:
                raise DuplicateRegistration(str(error), name, self._places[name], place) from None
            raise
        self._places[name] = place

    def place(self, name: str) -> Location | None:
        """Returns the line that registered a task or mixture, or None if it was registered before the recording."""
        return self._places[name][0] if name in self._places else None


_OF_PROCESS = Registrations()


def _place(frame: FrameType | None) -> _Registering:
    """Returns the innermost line that is not in SeqIO."""
    own = Path(seqio.__file__).parent
    while frame is not None and frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(own):
        frame = frame.f_back
    assert frame is not None
    return Location(shown_path(frame.f_code.co_filename), frame.f_lineno), str(frame.f_globals.get("__name__", ""))


_PARAMETERS: dict[Mode, tuple[str, ...]] = {
    Mode.TRAIN: ("train_dataset_cfg", "train_eval_dataset_cfg", "infer_eval_dataset_cfg"),
    Mode.EVAL: ("dataset_cfg",),
    Mode.INFER: ("dataset_cfg",),
}


@dataclasses.dataclass(frozen=True)
class DataRole:
    """A dataset of the run and its role.

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
        """The role in words: ``train``, ``train_eval``, ``infer_eval`` or ``dataset``."""
        return self.parameter.removesuffix("_cfg").removesuffix("_dataset") or self.parameter

    @property
    def source(self) -> str:
        """The task or mixture's name."""
        name = self.dataset.mixture_or_task_name
        return name if isinstance(name, str) else getattr(name, "name", type(name).__name__)

    @property
    def provider(self) -> Any:
        """The task or mixture.

        Raises:
          ValueError: nothing is registered under its name.
        """
        name = self.dataset.mixture_or_task_name
        return seqio.get_mixture_or_task(name) if isinstance(name, str) else name

    @property
    def batch_size(self) -> int | None:
        """The number of examples in a batch; None if the bound value is not a number."""
        size = self.dataset.batch_size
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    def key(self, config: GinConfig, parameter: str) -> BindingKey | None:
        """Returns the binding that sets one of its parameters, following macros."""
        return config.owner(config.find(parameter, "DatasetConfig", self.scope))


def roles_of(config: GinConfig) -> list[DataRole]:
    """Returns the datasets of the run that are bound to a DatasetConfig, in T5X's order."""
    roles = []
    for parameter in _PARAMETERS[config.mode]:
        dataset = config.build(parameter)
        if isinstance(dataset, utils.DatasetConfig):
            roles.append(DataRole(parameter, config.scope_of(parameter) or "", dataset))
    return roles


def registered_name(role: DataRole) -> str | None:
    """Returns the name under which a dataset's task or mixture is registered with SeqIO.

    Returns None for an object that is not registered.
    """
    given = role.dataset.mixture_or_task_name
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None)
    known = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    return name if name in known and seqio.get_mixture_or_task(name) is given else None


def tasks_of(role: DataRole) -> Sequence[seqio.Task]:
    """Returns the tasks behind a dataset: the task itself, or each task of the mixture.

    Raises:
      ValueError: nothing is registered under this name.
    """
    tasks: Sequence[seqio.Task] = seqio.get_subtasks(role.provider)
    return tasks


def source_dataset(task: seqio.Task, dataset: utils.DatasetConfig) -> tf.data.Dataset:
    """Returns the examples of a task's own source, in order and before preprocessing, with the run's seed."""
    return task.source.get_dataset(split=dataset.split, shuffle=False, seed=dataset.seed)


def task_features(converter: Any, lengths: Collection[str]) -> set[str]:
    """Returns the features that a model's feature converter takes from a task; empty if it does not list them.

    Args:
      converter: ``FEATURE_CONVERTER_CLS`` of the model; None if it has none.
      lengths: the features that have lengths; they decide which kind of converter SeqIO's converter for decoders uses.
    """
    if isinstance(converter, type) and issubclass(converter, seqio.DecoderFeatureConverter):
        if "suffixes" in lengths:
            return set(seqio.feature_converters.PrefixSuffixLMFeatureConverter.TASK_FEATURES)
        if "inputs" in lengths:
            return set(seqio.PrefixLMFeatureConverter.TASK_FEATURES)
    return set(getattr(converter, "TASK_FEATURES", ()))


def demanded_features(model: Any, role: DataRole) -> set[str]:
    """Returns the features without which the model's feature converter refuses data; empty if that is not known."""
    converter = getattr(model, "FEATURE_CONVERTER_CLS", None)
    call = converter.__call__ if isinstance(converter, type) and issubclass(converter, seqio.FeatureConverter) else None
    if not str(getattr(call, "__module__", "")).startswith("seqio."):
        return set()  # the user's own converter may take what SeqIO's refuse
    return task_features(converter, role.dataset.task_feature_lengths or ())


def vocabulary_ids(model: Any) -> int | None:
    """Returns how many ids the model's vocabularies can produce; None if it has none or they cannot be read."""
    found = [getattr(model, name, None) for name in ("input_vocabulary", "output_vocabulary")]
    sizes = [vocabulary_size(v) for v in found if isinstance(v, seqio.Vocabulary)]
    return max((n for n in sizes if n), default=None)


@contextlib.contextmanager
def few_examples(tasks: Sequence[seqio.Task], number: int | None) -> Iterator[None]:
    """Limits tasks to their first examples for readers that go through them once: evaluation and inference.

    Training repeats its data and still reads everything.

    Args:
      tasks: registered tasks; restored afterwards.
      number: the number of examples of each task; None for all.
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


def needing_lengths(task: seqio.Task) -> str | None:
    """Returns the name of the first preprocessor that needs the feature lengths, or None if no preprocessor does."""
    for step in preprocessors(task):
        parameters = {} if isinstance(step, seqio.CacheDatasetPlaceholder) else inspect.signature(step).parameters
        needed = parameters.get("sequence_length")
        if needed is not None and needed.default is inspect.Parameter.empty:
            function = step.func if isinstance(step, functools.partial) else step
            return getattr(function, "__name__", type(function).__name__)
    return None


def vocabulary_size(vocabulary: seqio.Vocabulary) -> int | None:
    """Returns the number of ids in a vocabulary, including extra ids; None if it cannot be read here."""
    try:
        size: int | None = vocabulary.vocab_size
    except (tf.errors.OpError, OSError, NotImplementedError):
        return None
    return size


def describe_vocabulary(vocabulary: seqio.Vocabulary) -> str:
    """Describes a vocabulary by its distinguishing features: kind, file, size, extra ids."""
    size = vocabulary_size(vocabulary)
    parts = [f"{size} ids" if size is not None else "of unknown size"]
    extra = getattr(vocabulary, "extra_ids", 0)
    if extra:
        parts.append(f"{extra} extra")
    if file := vocabulary_file(vocabulary):
        parts.append(file)
    return f"{type(vocabulary).__name__} ({', '.join(parts)})"


@dataclasses.dataclass(frozen=True)
class TfdsProblem:
    """The reason that a TFDS dataset cannot be read.

    Attributes:
      name: the dataset's name, as the task has it.
      detail: TFDS's message about the name or version, or the folder in which the data should be.
      can_be_prepared: whether TFDS knows the dataset and could prepare it.
    """

    name: str
    detail: str
    can_be_prepared: bool = False


def tfds_problem(task: seqio.Task, split: str) -> TfdsProblem | None:
    """Returns why a task's TFDS dataset cannot be read.

    Returns None if the dataset can be read, if the source is of another kind, or if the data is out of reach.
    """
    source = task.source
    if not isinstance(source, seqio.TfdsDataSource) or out_of_reach(task, split):
        return None
    name = str(source.tfds_dataset.get_split_params(split)[0])
    try:
        builder = builder_of(source.tfds_dataset, split)
    except AssertionError as error:  # TFDS asserts that it has the version; its last sentence lists its versions
        return TfdsProblem(name, str(error).rpartition('}": ')[2].rstrip("."))
    except ValueError as error:  # DatasetNotFoundError, with a list of all names
        return TfdsProblem(name, str(error).splitlines()[0])
    if builder.is_prepared():
        return None
    if builder.version.tfds_version_to_prepare:
        return TfdsProblem(name, f"only TFDS {builder.version.tfds_version_to_prepare} could prepare it")
    generated = sorted({str(builder.canonical_version), str(max(builder.versions))})
    if str(builder.version) not in generated:
        return TfdsProblem(name, f"it generates only {' and '.join(generated)}")
    return TfdsProblem(name, str(builder.data_path), can_be_prepared=True)


def versions_asked(text: str) -> str | None:
    """Returns a fix that lists the installed TFDS's versions, if SeqIO finds no version in a dataset's name."""
    found = re.search(r"TFDS name must contain a version number, got: ([\w./-]+)", text)
    if found is None:
        return None
    import tensorflow_datasets as tfds

    try:
        versions = tfds.builder(found[1]).versions
    except Exception:  # TFDS has no such dataset, which is a different mistake
        return None
    named = ", ".join(f"{found[1]}:{version}" for version in versions)
    return f"name a version; the installed TFDS has {named}"
