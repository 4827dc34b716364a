"""A task's source replaced by rows of the user's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

seqio = pytest.importorskip("seqio")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

from t5x_harness.standins.rows import Samples  # noqa: E402
from t5x_harness.standins.sources import put_rows, read_uncached  # noqa: E402


def read(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    assert (shuffle_files, seed) == (False, None)
    return tf.data.Dataset.from_tensor_slices({"text": [f"the task's own {split}"]})


@pytest.fixture
def task() -> Iterator[seqio.Task]:
    """A task that reads ``read`` and upper-cases it."""
    source = seqio.FunctionDataSource(read, splits=("train", "test"), num_input_examples={"train": 1, "test": 1})
    upper = seqio.map_over_dataset(lambda example: {"targets": tf.strings.upper(example["text"])})
    yield seqio.TaskRegistry.add(
        "sample_sources_task",
        source=source,
        preprocessors=[upper],
        output_features={"targets": seqio.Feature(seqio.PassThroughVocabulary(1), dtype=tf.string, rank=0)},
    )
    seqio.TaskRegistry.remove("sample_sources_task")


def texts(task: seqio.Task, split: str) -> list[str]:
    return [example["targets"].numpy().decode() for example in task.get_dataset(None, split, shuffle=False)]


def test_rows_go_through_the_tasks_preprocessors(task):
    put_rows(task, Samples(task.name, {"*": [{"text": "mine"}, {"text": "größer"}]}))
    assert texts(task, "train") == texts(task, "test") == ["MINE", "GRößER"]
    assert task.num_input_examples("test") == 1  # as the source says: rates of mixtures follow from it
    assert list(task.splits) == ["train", "test"]
    assert not task.supports_caching


def test_rows_of_a_text_file_are_its_lines():
    task = seqio.Task(
        "sample_sources_lines",
        source=seqio.TextLineDataSource({"train": "gs://b/train.txt"}),
        preprocessors=[seqio.map_over_dataset(lambda line: {"targets": tf.strings.upper(line)})],
        output_features={"targets": seqio.Feature(seqio.PassThroughVocabulary(1), dtype=tf.string, rank=0)},
    )
    put_rows(task, Samples(task.name, {"*": [{"text": "a\tb"}, {"text": "c"}]}))
    assert texts(task, "train") == ["A\tB", "C"]
    with pytest.raises(ValueError, match="the task reads lines, so its rows have one column, text, and not text, n"):
        put_rows(
            SimpleNamespace(source=seqio.TextLineDataSource({"train": "x"})),
            Samples("lines", {"*": [{"text": "a", "n": 1}]}),
        )


def test_rows_of_tfexamples_have_the_dtypes_of_their_features(task):
    described = {"n": tf.io.FixedLenFeature([], tf.int64), "text": tf.io.FixedLenFeature([], tf.string)}
    task._source = seqio.TFExampleDataSource({"train": "gs://b/train.tfrecord"}, feature_description=described)
    put_rows(task, Samples(task.name, {"*": [{"n": 7, "text": "mine"}]}))
    assert task.source.get_dataset("train").element_spec == {
        "n": tf.TensorSpec((), tf.int64),
        "text": tf.TensorSpec((), tf.string),
    }


def test_what_a_cache_out_of_reach_has_is_preprocessed_as_it_is_read():
    joined = seqio.map_over_dataset(lambda example: {"targets": example["text"] + "!"})
    task = seqio.Task(
        "sample_sources_cached",
        source=seqio.FunctionDataSource(read, splits=("train", "test")),
        preprocessors=[joined, seqio.CacheDatasetPlaceholder(required=True), joined_again],
        output_features={"targets": seqio.Feature(seqio.PassThroughVocabulary(1), dtype=tf.string, rank=0)},
    )
    read_uncached(task)
    (example,) = task.get_dataset(None, "train", use_cached=True, shuffle=False)
    assert example["targets"].numpy() == b"the task's own train!?"


@seqio.map_over_dataset
def joined_again(example):
    return {"targets": example["targets"] + "?"}


def test_a_source_that_says_no_size_says_none_with_rows():
    """SeqIO stops a job whose mixture has a rate by that size."""
    task = SimpleNamespace(source=seqio.FunctionDataSource(read, splits=("train",)))
    put_rows(task, Samples("unsized", {"*": [{"text": "mine"}]}))
    assert task._source.num_input_examples("train") is None


def test_a_split_without_rows_reads_what_it_did(task):
    put_rows(task, Samples(task.name, {"test": [{"text": "mine"}], "new": [{"text": "also"}]}))
    assert texts(task, "train") == ["THE TASK'S OWN TRAIN"]
    assert texts(task, "test") == ["MINE"]
    assert texts(task, "new") == ["ALSO"]


def elements(rows: Sequence[Mapping[str, Any]], source: Any) -> list[Any]:
    class Task:
        pass

    task = Task()
    task.source = task._source = source
    put_rows(task, Samples("task", {"*": rows}))
    return list(task._source.get_dataset("train", shuffle=False).as_numpy_iterator())


def test_values_have_the_types_that_tensorflow_gives_them():
    (one, two) = elements(
        [
            {"n": 1, "big": 2**40, "x": 0.5, "is": True, "ids": [1, 2, 3], "answers": [{"text": "a"}, {"text": "b"}]},
            {"n": 2, "big": 1, "x": 1, "is": False, "ids": [4], "answers": [{"text": "c"}]},
        ],
        seqio.FunctionDataSource(read, splits=("train",)),
    )
    assert (one["n"].dtype, one["big"].dtype, one["x"].dtype, one["is"].dtype) == (np.int32, np.int64, np.float32, bool)
    assert two["big"].dtype == np.int64
    assert two["x"].dtype == np.float32
    assert [row["ids"].tolist() for row in (one, two)] == [[1, 2, 3], [4]]
    assert one["answers"]["text"].tolist() == [b"a", b"b"]


def test_values_have_the_types_of_the_tfds_dataset_that_they_replace(tmp_path, monkeypatch):
    import builders  # noqa: F401 (registers the dataset)

    monkeypatch.setattr(seqio.LazyTfdsLoader, "_MEMOIZED_BUILDERS", {})
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    (row,) = elements(
        [{"label": 1, "answers": {"text": ["a"], "start": [3]}, "three": [1, 2, 3]}],
        seqio.TfdsDataSource("every_feature:1.0.0"),
    )
    assert row["label"].dtype == np.int64
    assert row["answers"]["start"].dtype == np.int32
    assert row["three"].dtype == np.int64


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": None}], "None is not text, number or list of either"),
        ([{"a": [1]}, {"a": 1}], "a column has lists in some rows and single values in others"),
    ],
)
def test_values_that_make_no_tensor_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        elements(rows, seqio.FunctionDataSource(read, splits=("train",)))
