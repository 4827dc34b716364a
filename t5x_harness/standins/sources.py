"""The sources of SeqIO tasks: whether they are within reach, and the rows or generated data that replace them.

A task keeps its preprocessors, features and metrics; only its source changes.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from t5x_harness.buckets.reach import is_replaced, is_unreachable
from t5x_harness.spec import StandInPolicy
from t5x_harness.standins import tfds
from t5x_harness.standins.rows import EVERY_SPLIT, USUAL_SPLITS, Row, Samples
from t5x_harness.upstream import seqio as upstream
from t5x_harness.upstream.seqio import function_of, split_patterns


def patterns_of(task: seqio.Task, split: str) -> tuple[str, ...]:
    """Returns the file patterns, the TFDS dataset or the function that a split is read from, as the task names it."""
    source = task.source
    if isinstance(source, seqio.FileDataSource):
        return split_patterns(source, split)
    if isinstance(source, seqio.TfdsDataSource):
        dataset, folder = source.tfds_dataset.get_split_params(split)
        return (f"{dataset or folder}{f' in {folder}' if dataset and folder else ''}",)
    function = function_of(source)
    function = getattr(function, "func", function)  # of a partial
    return (getattr(function, "__name__", type(source).__name__),)


def is_generated(task: seqio.Task) -> bool:
    """Tells whether a task's examples come from code and not from files. Only such examples may be endless."""
    return not isinstance(task.source, (seqio.FileDataSource, seqio.TfdsDataSource))


def files_of(task: seqio.Task, split: str) -> Sequence[str] | None:
    """Returns the files of a split, or None if it is not read from files or they cannot be listed here."""
    if is_generated(task) or split not in splits_of(task):
        return None
    try:
        files: Sequence[str] = task.source.list_shards(split)
    except (tf.errors.OpError, OSError, LookupError, ValueError, AssertionError):  # the last two are of TFDS
        return None
    return files


def out_of_reach(task: seqio.Task, split: str) -> tuple[str, ...]:
    """Returns the addresses of a split's data if it is in buckets that this machine does not see."""
    if isinstance(task.source, seqio.TfdsDataSource):
        _, folder = task.source.tfds_dataset.get_split_params(split)
        return (str(folder),) if folder and is_unreachable(str(folder)) else ()
    if isinstance(task.source, seqio.FileDataSource):
        return tuple(filter(is_unreachable, patterns_of(task, split)))
    return ()


def splits_of(data: seqio.Task | seqio.DataSourceInterface) -> Sequence[str]:
    """Returns the splits of a task or source; empty if only data that is missing here could tell."""
    try:
        return tuple(data.splits)
    except Exception:  # TFDS raises in many ways, and SeqIO a ValueError for a dataset that is not prepared
        return ()


def declared_size(task: seqio.Task, split: str) -> int | None:
    """Returns the number of examples that a source declares for a split, or None if it declares none."""
    try:
        number: Any = task.source.num_input_examples(split)
    except Exception:  # the data is missing, or the split is not counted
        return None
    return int(number) if number and number != float("inf") else None


def cache_of(task: seqio.Task) -> str | None:
    """Returns the folder with a task's cached examples, or None if no such folder is within reach."""
    folder: str | None = task.cache_dir if task.supports_caching else None
    return folder


_INT32 = range(-(2**31), 2**31)


def put_rows(task: seqio.Task, samples: Samples) -> None:
    """Gives a task a source of the user's rows; splits without rows are still read from its own source.

    Args:
      task: a registered task; it is changed.
      samples: its rows, with the columns that its first preprocessor takes; for text files one column, ``text``.

    Raises:
      ValueError: the values cannot be made into tensors, or rows for a task that reads lines have other columns.
    """
    before = task.source
    dtypes = _dtypes_of(before)
    as_read = _line_of if isinstance(before, seqio.TextLineDataSource) else dict
    own = {
        split: dataset_of([_tensors(as_read(row), dtypes) for row in rows]) for split, rows in samples.splits.items()
    }
    every = own.pop(EVERY_SPLIT, None)
    usual = () if every is None else USUAL_SPLITS
    splits = dict.fromkeys((*own, *(splits_of(before) or usual)))

    def declared_rows(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        rows = own.get(split, every)
        return before.get_dataset(split, shuffle=shuffle_files, seed=seed) if rows is None else rows

    counts = {split: len(rows) for split in splits if (rows := samples.rows(split)) is not None}
    source = seqio.FunctionDataSource(
        declared_rows,
        splits=tuple(splits),
        num_input_examples=_sizes(before, counts, len(splits)),
        caching_permitted=before.caching_permitted,
    )
    upstream.replace_source(task, source)


def _sizes(source: seqio.DataSourceInterface, counts: Mapping[str, int], splits: int) -> Mapping[str, int] | None:
    """Returns the sizes that a source with rows declares: the same as before, because mixing rates use them."""
    if isinstance(source, seqio.TfdsDataSource):  # it takes the size from its data, which is missing
        return counts if len(counts) == splits else None
    declared = upstream.declared_sizes(source)
    return {**counts, **declared} if declared is not None else None


def read_uncached(task: seqio.Task) -> None:
    """Makes a task read the examples of its cache from its source and preprocess them as they are read.

    Args:
      task: a registered task that can be cached; it is changed.
    """

    def examples(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        dataset = task.source.get_dataset(split, shuffle=shuffle_files, seed=seed)
        return task.preprocess_precache(dataset, seed=seed)

    upstream.cached_examples_from(task, lambda: seqio.FunctionDataSource(examples, splits=tuple(task.splits)))


def _line_of(row: Row) -> Any:
    """Returns the line that a row represents.

    Raises:
      ValueError: the row has columns other than ``text``.
    """
    if list(row) != ["text"]:
        raise ValueError(f"the task reads lines, so its rows have one column, text, and not {', '.join(row)}")
    return row["text"]


def _dtypes_of(source: seqio.DataSourceInterface) -> Any:
    """Returns the dtypes of a source's features, nested as they are; empty if the source does not declare them."""
    if isinstance(source, seqio.TFExampleDataSource):
        described = source.feature_description.items()
        return {name: spec.dtype.as_numpy_dtype for name, spec in described if spec.dtype is not tf.string}
    if not isinstance(source, seqio.TfdsDataSource):
        return {}
    try:
        return source.tfds_dataset.info.features.np_dtype
    except Exception:  # TFDS does not have the dataset or version
        return {}


def dataset_of(rows: Sequence[Any]) -> tf.data.Dataset:
    """Makes a dataset of rows or examples, in order. A dimension whose size differs between them is unknown."""
    first = rows[0] if rows else None
    nothing = {name: None for name, value in first.items() if value is None} if isinstance(first, Mapping) else {}
    if nothing:  # which a preprocessor may return, but a generator may not yield
        rest = [{name: value for name, value in row.items() if name not in nothing} for row in rows]
        return dataset_of(rest).map(lambda row: {**row, **nothing})
    signature = tf.nest.map_structure(lambda *values: _spec(values), *rows)
    dataset = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=signature)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(rows)))


def _tensors(value: Any, dtype: Any) -> Any:
    """Returns a row's values as arrays; a list of tables becomes a table of lists, as in TFDS."""
    if isinstance(value, Mapping):
        known = dtype if isinstance(dtype, Mapping) else {}
        return {key: _tensors(part, known.get(key)) for key, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
        return _tensors({key: [part[key] for part in value] for key in value[0]}, dtype)
    array = np.array(value)
    if array.dtype.kind == "U":
        return np.vectorize(str.encode, otypes=[object])(array)
    if array.dtype.kind not in "iufb":
        raise ValueError(f"{value!r} is not text, number or list of either")
    if dtype is not None and not isinstance(dtype, Mapping) and np.dtype(dtype).kind in "iufb":
        return array.astype(dtype)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    fits = array.dtype.kind == "i" and all(int(number) in _INT32 for number in array.flat)
    return array.astype(np.int32) if fits else array


def _spec(values: Sequence[Any]) -> tf.TensorSpec:
    """Returns the shape and dtype that all values of a column have.

    Raises:
      ValueError: the rows differ in their number of dimensions.
    """
    arrays = [np.asarray(value) for value in values]
    if len({array.ndim for array in arrays}) > 1:
        raise ValueError("a column has lists in some rows and single values in others")
    shape = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*(a.shape for a in arrays), strict=True)]
    dtypes = [array.dtype for array in arrays]
    if dtypes[0].kind in "OS":
        return tf.TensorSpec(shape, tf.string)
    floats = [dtype for dtype in dtypes if dtype.kind == "f"]  # whole numbers among them do not make doubles
    return tf.TensorSpec(shape, tf.as_dtype(np.result_type(*(floats or dtypes))))


@dataclasses.dataclass(frozen=True)
class GeneratedTfds:
    """A TFDS dataset that was generated or could not be generated.

    Attributes:
      name: the dataset's name in the task.
      folder: the folder that the task reads it from; None if TFDS chooses it.
      problem: the reason why it could not be generated, or None.
    """

    name: str
    folder: str | None
    problem: str | None = None


def generate_tfds(
    source: seqio.TfdsDataSource, folder: Path, policy: StandInPolicy, batch: int
) -> Iterator[GeneratedTfds]:
    """Makes a source read generated data if its own is missing.

    A dataset stays unchanged if TFDS has it, if its name, config or version is wrong, or if it is missing from a local
    folder that the task or ``--tfds_data_dir`` names: the last two are the user's errors.

    Args:
      source: a task's source; it is changed.
      folder: the TFDS ``data_dir`` for generated data.
      policy: when data is generated.
      batch: the size of the largest batch that is read from it.
    """
    if policy is StandInPolicy.OFF:
        return
    loader = source.tfds_dataset
    instructions = upstream.tfds_instructions(source)
    number = tfds.examples_needed(instructions, batch)
    done: dict[tuple[str, str | None], GeneratedTfds] = {}
    for split in upstream.tfds_splits(source) or (None,):
        name, data_dir = loader.get_split_params(split)
        if name is None or (name, data_dir) in done or not _is_missing(loader, name, data_dir, policy):
            continue
        if made := _prepared(loader, name, data_dir, folder, instructions, number):
            done[name, data_dir] = made
            yield made
    generated = {where for where, made in done.items() if made.problem is None}
    if loader.tfds_splits:
        moved = {
            name: dataclasses.replace(split, data_dir=str(folder))
            if (split.dataset, split.data_dir) in generated
            else split
            for name, split in loader.tfds_splits.items()
        }
        upstream.replace_splits(loader, moved)
    elif generated:
        loader.override_data_dir(str(folder))


def _prepared(
    loader: Any, name: str, data_dir: str | None, folder: Path, instructions: Sequence[str], number: int
) -> GeneratedTfds | None:
    splits = [text.split("[")[0] for instruction in instructions for text in instruction.split("+")]
    try:
        tfds.prepare(
            name,
            folder,
            builder_kwargs=upstream.builder_kwargs(loader),
            splits=splits,
            number=number,
            any_version=data_dir is not None,
        )
    except tfds.CannotGenerate as error:
        return GeneratedTfds(name, data_dir, str(error))
    except Exception:  # the name, the version or the user's builder is wrong, which a rule or the reading reports
        return None
    return GeneratedTfds(name, data_dir)


def _is_missing(loader: Any, name: str, data_dir: str | None, policy: StandInPolicy) -> bool:
    """Tells whether TFDS knows a dataset, its data is missing here, and no local folder is meant to have it."""
    import tensorflow_datasets

    if data_dir is not None:
        return is_replaced(data_dir, policy)
    try:
        builder = tensorflow_datasets.builder(name, **upstream.builder_kwargs(loader))
    except Exception:  # no such dataset, config or version, or the user's builder raises
        return False
    return not builder.is_prepared()
