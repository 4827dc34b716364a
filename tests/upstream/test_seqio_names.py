"""SeqIO still has every private name that upstream/seqio.py uses."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from canary import canary

seqio = pytest.importorskip("seqio")

import tensorflow as tf  # noqa: E402

from t5x_harness.upstream import seqio as upstream  # noqa: E402
from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS, functions_of  # noqa: E402

FEATURES = {"targets": seqio.Feature(seqio.PassThroughVocabulary(size=20))}


def numbers(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
    assert (split, shuffle_files, seed) == ("train", False, None)
    return tf.data.Dataset.range(3).map(lambda number: {"targets": tf.cast(number, tf.int32)[None]})


def accuracy(targets: Any, predictions: Any) -> dict[str, float]:
    return {"accuracy": float(targets == predictions)}


def double(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.map(lambda example: {"targets": example["targets"] * 2})


def source(**options: Any) -> Any:
    return seqio.FunctionDataSource(numbers, splits=("train",), **options)


def task(**options: Any) -> Any:
    return seqio.Task("canary", source(), FEATURES, preprocessors=(double,), **options)


def targets(dataset: tf.data.Dataset) -> list[int]:
    return [int(example["targets"][0]) for example in dataset.as_numpy_iterator()]


@canary("seqio")
def test_what_a_task_was_defined_with_is_given_as_its_module_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    other = seqio.metrics.Metric
    made = task(metric_fns=[accuracy], metric_objs=[other])
    assert (list(upstream.metric_functions(made)), list(upstream.metric_objects(made))) == ([accuracy], [other])
    assert list(upstream.preprocessors(task())) == [double]
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    seqio.TaskRegistry.add("canary", source(), FEATURES)
    rate = functools.partial(float, 2)
    assert upstream.weights_of(seqio.Mixture("mixed", [("canary", rate)])) == {"canary": rate}
    assert upstream.vocabulary_file(seqio.SentencePieceVocabulary("x.model")) == "x.model"
    assert upstream.vocabulary_file(seqio.ByteVocabulary()) is None


@canary("seqio")
def test_examples_go_through_some_preprocessors() -> None:
    made = task()
    with seqio.utils.map_seed_manager(0):
        found = upstream.preprocess(made, numbers("train", False), [double, double], {"targets": 1})
        assert targets(found) == [0, 4, 8]


@canary("seqio")
def test_a_task_reads_from_another_source_also_in_place_of_its_cache() -> None:
    made = seqio.Task(
        "canary", source(), FEATURES, preprocessors=(double, seqio.CacheDatasetPlaceholder(required=True), double)
    )
    other = source()
    upstream.replace_source(made, other)
    assert made.source is other
    upstream.cached_examples_from(made, source)
    found = made.get_dataset({"targets": 1}, "train", use_cached=True, shuffle=False)
    assert targets(found) == [0, 2, 4]


@canary("seqio")
def test_sources_tell_their_patterns_functions_and_sizes() -> None:
    files = seqio.TextLineDataSource({"train": "a.tsv", "test": ["b.tsv", "c.tsv"]})
    assert upstream.split_patterns(files, "train") == ("a.tsv",)
    assert upstream.split_patterns(files, "test") == ("b.tsv", "c.tsv")
    assert upstream.split_patterns(files, "other") == ()
    assert upstream.function_of(source()) is numbers
    assert upstream.declared_sizes(source(num_input_examples={"train": 3})) == {"train": 3}


@canary("seqio")
def test_tfds_sources_tell_their_splits_and_builders(tmp_path: Path) -> None:
    found = seqio.TfdsDataSource("mnist:3.0.1", splits={"train": "train[:90%]"}, tfds_data_dir=str(tmp_path))
    assert list(upstream.tfds_splits(found)) == ["train"]
    assert upstream.tfds_instructions(found) == ["train[:90%]"]
    assert upstream.builder_kwargs(found.tfds_dataset) == {}
    assert upstream.builder_of(found.tfds_dataset, "train").name == "mnist"


@canary("seqio")
def test_the_splits_of_a_loader_are_replaced() -> None:
    splits = {"train": seqio.utils.TfdsSplit("mnist:3.0.1", "train", None)}
    found = seqio.TfdsDataSource(splits={"train": seqio.utils.TfdsSplit("mnist:3.0.1", "test", None)})
    upstream.replace_splits(found.tfds_dataset, splits)
    assert found.tfds_dataset.tfds_splits == splits
    assert upstream.tfds_instructions(found) == ["train"]


@canary("seqio")
def test_seqio_opens_the_file_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seqio.vocabularies, "_load_model", lambda file, extra_ids, **options: (file, extra_ids))
    upstream.open_vocabulary_files(lambda path, extra_ids: f"first-{path}")
    upstream.open_vocabulary_files(lambda path, extra_ids: f"{path}-{extra_ids}")
    assert seqio.vocabularies._load_model("x.model", 3) == ("x.model-3", 3)


@canary("seqio")
def test_registrations_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = seqio.dataset_providers.DatasetProviderRegistry
    monkeypatch.setattr(registry, "add_provider", registry.__dict__["add_provider"])
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    seen: list[tuple[str, bool]] = []

    def on_register(name: str, _frame: FrameType, register: Any) -> None:
        register()
        seen.append((name, name in seqio.TaskRegistry.names()))

    upstream.watch_registrations(on_register)
    seqio.TaskRegistry.add("canary", source(), FEATURES)
    assert seen == [("canary", True)]


@canary("seqio")
def test_every_function_is_there_whose_conversion_is_kept() -> None:
    assert [name for name in SEQIO_FUNCTIONS if not functions_of([name])] == []


@canary("seqio")
def test_a_cache_is_read_before_it_is_complete_and_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "canary"
    folder.mkdir()
    features = {"targets": {"shape": [None], "dtype": "int32"}}
    info = {"num_shards": 1, "features": features, "seqio_version": seqio.__version__}
    (folder / "info.train.json").write_text(json.dumps(info))
    (folder / "stats.train.json").write_text('{"examples": 1}')
    with tf.io.TFRecordWriter(f"{folder}/train.tfrecord-00000-of-00001") as writer:
        writer.write(seqio.dict_to_tfexample({"targets": tf.constant([7])}).SerializeToString())
    (example,) = upstream.cached_source(str(folder), "train").get_dataset("train", shuffle=False)
    assert example["targets"].numpy().tolist() == [7]

    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
    made = seqio.Task("canary", source(), FEATURES, preprocessors=(seqio.CacheDatasetPlaceholder(),))
    (folder / "COMPLETED").touch()
    assert made.get_cached_stats("train") == {"examples": 1}
    (folder / "stats.train.json").write_text('{"examples": 2}')
    upstream.forget_cache(made)
    assert made.get_cached_stats("train") == {"examples": 2}
