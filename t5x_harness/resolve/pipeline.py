"""A task's input pipeline, built one part at a time and not read: what each part leaves, and which part breaks it."""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf

from t5x_harness.resolve.datasets import DataRole, source_dataset
from t5x_harness.resolve.exceptions import USER, definition_of
from t5x_harness.spec import Location
from t5x_harness.upstream.seqio import function_of, metric_functions, preprocess, preprocessors

CHECK_SOURCE = "check the source's files and filters"

_LONGEST = 40


def steps_of(task: seqio.Task) -> list[Any]:
    """Returns a task's preprocessors in their order, without the placeholder of its cache."""
    return [step for step in task.preprocessors if not isinstance(step, seqio.CacheDatasetPlaceholder)]


def preprocessed(task: seqio.Task, role: DataRole, dataset: tf.data.Dataset, steps: Sequence[Any]) -> tf.data.Dataset:
    """Applies some of a task's preprocessors to examples, with the seed and the lengths of a run's dataset."""
    with seqio.utils.map_seed_manager(role.dataset.seed):
        return preprocess(task, dataset, steps, role.dataset.task_feature_lengths)


@dataclasses.dataclass(frozen=True)
class Part:
    """A function of a pipeline: that of the source, or a preprocessor.

    Attributes:
      name: its name; "a lambda" for one without a name.
      place: the line where the user defines it; None for a library's.
      call: the name with the arguments that a partial gives it.
    """

    name: str
    place: Location | None
    call: str

    @classmethod
    def of(cls, function: Any) -> "Part":
        """Looks through any partials and decorators."""
        given: list[str] = []
        while hasattr(function, "func") and not isinstance(function, type):  # partials have it
            given += [f"{name}={_short(value)}" for name, value in getattr(function, "keywords", {}).items()]
            function = function.func
        name = getattr(inspect.unwrap(function), "__name__", type(function).__name__)
        found = definition_of(function)
        place = found.location if found is not None and found.party == USER else None
        name = "a lambda" if name == "<lambda>" else name
        return cls(name, place, f"{name}({', '.join(given)})" if given else name)

    def __str__(self) -> str:
        return f"{self.name} in {self.place}" if self.place else self.name


def of_nothing(task: seqio.Task) -> tuple[str, str]:
    """Returns which function of a source gives no example, as the end of a message; and the fix."""
    function = function_of(task.source)
    if function is None:
        return "", CHECK_SOURCE
    part = Part.of(function)
    return f": {part} gives none", f"correct {part.name}"


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """The parts of a pipeline up to the first one that breaks it.

    Attributes:
      leaves: each part that works, with the dataset that it returned.
      broken: the part that raises, or returns something other than a dataset; None if there is none.
      returned: what that part returned, in a tuple; empty if it raised.
    """

    leaves: Sequence[tuple[Part, tf.data.Dataset]]
    broken: Part | None = None
    returned: tuple[Any, ...] = ()

    def feature(self, name: str) -> str | None:
        """Describes what the last part of the user's own that has a feature makes of it; None if there is none."""
        for part, dataset in reversed(self.leaves):
            spec = dataset.element_spec
            if part.place is not None and isinstance(spec, Mapping) and name in spec:
                return f"{part} leaves {shown_spec({name: spec[name]})}"
        return None

    def given_to(self, name: str, number: int) -> str | None:
        """Describes what a part is given, and by which part; None if it is the source, or was not reached.

        Args:
          name: the part's name.
          number: how many parts are before it.
        """
        if not 0 < number <= len(self.leaves):
            return None
        last, dataset = self.leaves[number - 1]
        own = next((part for part, _ in reversed(self.leaves[:number]) if part.place is not None), last)
        by = f"{own}" if own is last else f"{last}, after {own}"
        return f"{name} is given {shown_spec(dataset.element_spec)} by {by}"

    @property
    def given_to_broken(self) -> str | None:
        """Describes what the broken part is given; None if there is none."""
        return self.given_to(self.broken.call, len(self.leaves)) if self.broken else None

    @property
    def leaves_none(self) -> tuple[Part, str] | None:
        """The first part that leaves None as the value of a feature, and the feature; None if there is none."""
        for part, dataset in self.leaves:
            spec = dataset.element_spec
            for name, of_feature in spec.items() if isinstance(spec, Mapping) else ():
                if of_feature == tf.type_spec_from_value(None):
                    return part, str(name)
        return None


def build(task: seqio.Task, role: DataRole) -> Pipeline:
    """Builds a task's pipeline for a dataset of the run, up to the part that breaks it.

    Raises:
      Exception: the source raises it.
    """
    leaves: list[tuple[Part, tf.data.Dataset]] = []
    data = source_dataset(task, role.dataset)
    part = Part.of(function_of(task.source) or type(task.source))
    for step in (*steps_of(task), None):
        if not isinstance(data, tf.data.Dataset):
            return Pipeline(leaves, part, (data,))
        leaves.append((part, data))
        if step is not None:
            part = Part.of(step)
            try:
                data = preprocessed(task, role, data, [step])
            except Exception:  # which is being explained
                return Pipeline(leaves, part)
    return Pipeline(leaves)


def wrong_object(task: seqio.Task) -> tuple[str, str] | None:
    """Finds an object in a task that is of a kind that SeqIO cannot use; called if SeqIO cannot read the task.

    Returns:
      A message and the fix; None if there is no such object.
    """
    return _first_of(task, _objects(task))


def wrong_metric(task: seqio.Task) -> tuple[str, str] | None:
    """Finds what SeqIO's evaluator cannot call as a metric function, as :func:`wrong_object` does."""
    return _first_of(task, _uncalled_metrics(task))


def _first_of(task: seqio.Task, wrong: Iterable[tuple[str, Any, str]]) -> tuple[str, str] | None:
    for what, given, needed in wrong:
        fix = f"call it: {given.__name__}(...)" if isinstance(given, type) else f"give {needed}"
        return f"{what} of task {task.name} is {shown(given)}, not {needed}", fix
    return None


def without_dataset(task: seqio.Task, role: DataRole) -> tuple[str, Location | None, str] | None:
    """Finds the part of a task's pipeline that returns something other than a dataset.

    Returns:
      A message, the line where the user defines the part, and the fix; None if there is no such part.
    """
    pipeline = None
    with contextlib.suppress(Exception):  # the source itself raises, which its own text explains
        pipeline = build(task, role)
    if pipeline is None or pipeline.broken is None or not pipeline.returned:
        return None
    part = pipeline.broken
    message = f"{part} of task {task.name} returned {shown(*pipeline.returned)}, not a tf.data.Dataset"
    return message, part.place, f"return a tf.data.Dataset from {part.name}"


def _objects(task: seqio.Task) -> Iterator[tuple[str, Any, str]]:
    """Yields the objects in a task that are of a kind that SeqIO cannot use: where, the object, and what it needs."""
    steps: Sequence[Any] = preprocessors(task)
    for number, step in enumerate(steps, start=1):
        if not callable(step) and not isinstance(step, seqio.CacheDatasetPlaceholder):
            yield f"preprocessor {number}", step, "a function"
    for name, feature in task.output_features.items():
        vocabulary = getattr(feature, "vocabulary", feature)
        if isinstance(feature, type) or vocabulary is feature:
            yield f"output feature {name}", feature, "a seqio.Feature"
        elif isinstance(vocabulary, type) or type(vocabulary).__module__ == "builtins":
            yield f"the vocabulary of output feature {name}", vocabulary, "an object of a seqio.Vocabulary"


def _uncalled_metrics(task: seqio.Task) -> Iterator[tuple[str, Any, str]]:
    """Yields what stands in the place of metric functions and cannot be called, as :func:`_objects` does."""
    functions: Any = metric_functions(task)
    if isinstance(functions, str) or not isinstance(functions, Iterable):
        yield "metric_fns", functions, "a list of functions"
        return
    for number, function in enumerate(functions, start=1):
        if not callable(function):
            yield f"metric function {number}", function, "a function"


def shown_spec(spec: Any) -> str:
    """Describes the elements of a dataset: names, types and shapes of features, or what is there in their place."""
    if isinstance(spec, Mapping):
        return ", ".join(f"{name or repr(name)}: {shown_spec(each)}" for name, each in spec.items()) or "no feature"
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    if not isinstance(shape, tf.TensorShape) or dtype is None:
        return f"a {type(spec).__name__}"
    if shape.rank is None:
        return f"{dtype.name} of unknown rank"
    sizes = ", ".join("?" if size is None else str(size) for size in shape)
    return f"{dtype.name}[{sizes}]" if shape.rank else str(dtype.name)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST and " at 0x" not in text else "..."


def shown(value: Any) -> str:
    """Describes a value by its type, and by itself if that is short."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None:
        return "None"
    text = _short(value)
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{article} {kind}" + (f", {text}" if text != "..." else "")
