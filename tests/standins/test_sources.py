"""Replacements for tasks' sources: the user's rows, and generated TFDS data with the builder's own features."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

seqio = pytest.importorskip("seqio")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402
from builders import EveryFeature  # noqa: E402

from t5x_harness.spec import StandInPolicy  # noqa: E402
from t5x_harness.standins.rows import Samples  # noqa: E402
from t5x_harness.standins.sources import generate_tfds, put_rows, read_uncached  # noqa: E402
from t5x_harness.standins.tfds import CannotGenerate, examples_needed, prepare, splits_of  # noqa: E402


def read(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    assert (shuffle_files, seed) == (False, None)
    return tf.data.Dataset.from_tensor_slices({"text": [f"the task's own {split}"]})


@pytest.fixture
def task() -> Iterator[seqio.Task]:
    """Makes a task that reads ``read`` and converts it to upper case."""
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
    assert task.num_input_examples("test") == 1  # as the source declares: rates of mixtures depend on it
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
    """SeqIO stops a job whose mixture computes a rate from that size."""
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


def test_values_have_the_types_of_the_tfds_dataset_that_they_replace():
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


@pytest.fixture(autouse=True)
def nothing_is_prepared(monkeypatch, tmp_path: Path) -> None:
    """Hides prepared data, including any in the home folder."""
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path / "home"))
    monkeypatch.setattr(seqio.LazyTfdsLoader, "_MEMOIZED_BUILDERS", {})


def test_examples_are_of_the_builders_features(tmp_path: Path):
    builder = prepare("every_feature:1.0.0", tmp_path)
    examples = list(tfds.load("every_feature:1.0.0", split="train", data_dir=tmp_path))
    assert len(examples) == builder.info.splits["train"].num_examples == 128
    assert {int(example["label"]) for example in examples} == {0, 1, 2}
    one = examples[0]
    assert one["id"].numpy().startswith(b"generated-")
    assert set(one["pair"]) == {"de", "en"}
    assert one["answers"]["text"].shape == one["answers"]["start"].shape
    assert one["three"].shape == (3,)
    assert one["table"].shape == (8, 2)
    assert len(list(one["turns"])) in (1, 2, 3)
    assert one["seen"].dtype.is_bool


def test_texts_read_like_texts(tmp_path: Path):
    prepare("every_feature:1.0.0", tmp_path)
    for example in tfds.load("every_feature:1.0.0", split="train[:20]", data_dir=tmp_path):
        question, context = (example[key].numpy().decode() for key in ("question", "context"))
        assert 2 <= len(question.split()) <= 10
        assert 60 <= len(context.split()) <= 180
        for text in (question, context):
            assert text[0].isupper()
            assert text.endswith(".")


def test_the_same_everywhere_and_other_in_each_split(tmp_path: Path):
    found = []
    for folder in ("a", "b"):
        prepare("every_feature:1.0.0", tmp_path / folder)
        for split in ("train", "test"):
            data = tfds.load("every_feature:1.0.0", split=split, data_dir=tmp_path / folder)
            found.append([example["context"].numpy() for example in data.take(8)])
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("every_feature", ("train", "test")),
        ("splits_by_language", ("train_de", "train_en")),
        ("splits_in_the_data", ()),
        ("glue/mnli", ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched")),
        ("wmt19_translate/de-en", ("train", "validation")),
    ],
)
def test_splits_are_those_of_the_builders_code(tmp_path: Path, name: str, splits: tuple[str, ...]):
    assert splits_of(tfds.builder(name, data_dir=tmp_path)) == splits


def test_splits_that_only_the_data_could_tell_are_the_usual_and_the_tasks_own(tmp_path: Path):
    builder = prepare("splits_in_the_data:1.0.0", tmp_path, splits=["dev"])
    assert set(builder.info.splits) == {"train", "validation", "test", "dev"}


def test_a_split_has_what_tasks_cut_out_of_it():
    assert examples_needed(["train", "validation[:10%]", "test[:10]"]) == 128
    assert examples_needed(["train"], batch=1000) == 1000
    assert examples_needed(["train[50_000:60000]", "train[-5:]"]) == 60_064


def source(name: str, **options) -> object:
    return seqio.TfdsDataSource(name, **options)


def generated(data, folder: Path, policy: StandInPolicy = StandInPolicy.MISSING) -> list[str]:
    return [made.name for made in generate_tfds(data, folder, policy, batch=8)]


def test_a_source_reads_generated_data_as_its_own(tmp_path: Path):
    data = source("every_feature:1.0.0", splits={"train": "train", "few": "test[:10]"})
    assert generated(data, tmp_path) == ["every_feature:1.0.0"]
    assert list(data.splits) == ["train", "few"]
    assert data.num_input_examples("train") == 128
    assert len(data.list_shards("train")) == 1
    assert len(list(data.get_dataset("few", shuffle=False))) == 10
    assert generated(data, tmp_path) == [], "it is there now"


def test_splits_come_from_the_builder_where_the_source_names_none(tmp_path: Path):
    data = source("every_feature:1.0.0")
    generated(data, tmp_path)
    assert set(data.splits) == {"train", "test"}
    with pytest.raises(ValueError, match="Unknown split 'dev'"):
        data.get_dataset("dev")


def test_splits_of_several_datasets(tmp_path: Path):
    data = source(
        None,
        splits={
            "train": seqio.TfdsSplit("every_feature:1.0.0", "train"),
            "other": seqio.TfdsSplit("splits_by_language:1.0.0", "train_de", data_dir="gs://my-bucket/tfds"),
        },
    )
    assert generated(data, tmp_path) == ["every_feature:1.0.0", "splits_by_language:1.0.0"]
    for split in ("train", "other"):
        assert next(iter(data.get_dataset(split)))["three"].shape == (3,)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("no_such_dataset:1.0.0", None),
        ("glue/no_such_config:2.0.0", None),
        ("every_feature:0.1.0", None),
        ("two_versions:1.0.0", None),
        ("every_feature:1.0.0", "local"),
    ],
    ids=["dataset", "config", "version", "version too old", "missing from a local folder"],
)
def test_errors_of_the_users_stay(tmp_path: Path, name: str, folder: str | None):
    data = source(name, splits=["train"], tfds_data_dir=str(tmp_path / folder) if folder else None)
    assert generated(data, tmp_path / "standin") == []
    assert data.tfds_dataset.get_split_params("train") == (name, str(tmp_path / folder) if folder else None)


def test_an_old_version_may_lie_prepared_in_a_bucket(tmp_path: Path):
    data = source("two_versions:1.0.0", splits=["train"], tfds_data_dir="gs://my-bucket/tfds")
    assert generated(data, tmp_path) == ["two_versions:1.0.0"]
    assert len(list(data.get_dataset("train"))) == 128


def test_prepared_data_is_read_itself_and_off_generates_none(tmp_path: Path):
    assert generated(source("every_feature:1.0.0"), tmp_path, StandInPolicy.OFF) == []
    prepare("every_feature:1.0.0", tmp_path / "home")
    for policy in StandInPolicy:
        assert generated(source("every_feature:1.0.0"), tmp_path / "standin", policy) == []


def test_a_feature_that_cannot_be_generated_is_named(tmp_path: Path):
    with pytest.raises(CannotGenerate, match="the classes of '/label' are known only once the dataset is prepared"):
        prepare("classes_in_the_data:1.0.0", tmp_path)
    (made,) = generate_tfds(source("classes_in_the_data:1.0.0"), tmp_path, StandInPolicy.MISSING, batch=8)
    assert made.problem == "the classes of '/label' are known only once the dataset is prepared"


def test_the_builders_code_is_left_alone(tmp_path: Path):
    prepare("every_feature:1.0.0", tmp_path)
    assert "download_and_extract" in EveryFeature._split_generators.__code__.co_names
