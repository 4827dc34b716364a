"""Reading stops at its bounds, and a sample knows sizes, ends, and rows as SeqIO would pack them."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import seqio
import tensorflow as tf
from t5x import utils

from t5x_harness.resolve.datasets import DataRole, DuplicateRegistration, Registrations, registered_name, task_features
from t5x_harness.resolve.samples import (
    SOURCE_EXAMPLES,
    Reading,
    Sample,
    SourceEnd,
    find_end,
    packed_rows,
    period_of,
    read_within,
    sample_of,
)
from t5x_harness.resolve.sampling import example_at_fault

FEATURE = seqio.Feature(seqio.PassThroughVocabulary(size=20_000), required=False)
TEXT = tf.TensorSpec([None], tf.int32)


def numbers(count: int | None) -> tf.data.Dataset:
    """Returns the examples ``[0]``, ``[1]``, ..., a given number of them or without end."""
    dataset = tf.data.Dataset.range(count) if count is not None else tf.data.Dataset.counter()
    return dataset.map(lambda n: {"targets": tf.cast(n, tf.int32)[None]})


def role(given: Any = "sampled") -> DataRole:
    """Returns the role of a run's training data."""
    dataset = utils.DatasetConfig(given, {"targets": 3}, "train", batch_size=4, shuffle=False, seed=None)
    return DataRole("train_dataset_cfg", "train", dataset)


def task_of(make: Callable[[], tf.data.Dataset], *steps: Callable[..., Any]) -> seqio.Task:
    source = seqio.FunctionDataSource(lambda split, shuffle_files: make(), splits=("train",))
    return seqio.Task("sampled", source, {"targets": FEATURE}, preprocessors=steps)


def sample(make: Callable[[], tf.data.Dataset], *steps: Callable[..., Any], **options: Any) -> Sample:
    return sample_of(role(), task_of(make, *steps), use_cached=False, **options)


def generate() -> Iterator[dict[str, list[int]]]:
    yield from ({"targets": [i]} for i in range(3))


def generated() -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(generate, output_signature={"targets": TEXT})


def first_two(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.filter(lambda e: e["targets"][0] < 2)


@pytest.mark.parametrize(
    ("source", "steps", "count", "expected"),
    [
        pytest.param(
            5, (), 0, {"count": 5, "ended": True, "endless": False, "source_size": 5, "whole": True}, id="small"
        ),
        pytest.param(5000, (), 0, {"kept": 64, "count": 64, "ended": False, "endless": False}, id="large"),
        pytest.param(200, (), 100, {"kept": 64, "count": 100}, id="more-counted-than-kept"),
        pytest.param(None, (), 0, {"ended": False, "endless": True}, id="endless-source"),
        pytest.param(5, (lambda dataset: dataset.repeat(),), 0, {"ended": False, "endless": True}, id="repeated"),
        pytest.param(generated, (), 0, {"ended": True, "endless": False, "source_size": 3}, id="generator"),
        pytest.param(
            SOURCE_EXAMPLES + 5, (first_two,), 0, {"count": 2, "ended": False, "source_size": None}, id="source-cut-off"
        ),
    ],
)
def test_what_a_sample_says_of_its_split(source: Any, steps: Any, count: int, expected: dict[str, Any]) -> None:
    found = sample(source if callable(source) else lambda: numbers(source), *steps, count=count)
    said = {"kept": len(found.examples), **vars(found)}
    assert {name: said[name] for name in expected} == expected
    assert found.whole


def test_preprocessors_that_need_the_lengths_get_them() -> None:
    def cut(dataset: tf.data.Dataset, sequence_length: Any) -> tf.data.Dataset:
        return dataset.map(lambda e: {"targets": tf.repeat(e["targets"], sequence_length["targets"] + 2)})

    found = sample(lambda: numbers(2), cut)
    assert not found.whole
    assert found.lengths("targets") == [3, 3]


def test_the_tasks_own_source_stays_as_it_is() -> None:
    task = task_of(lambda: numbers(SOURCE_EXAMPLES + 5))
    sample_of(role(), task, use_cached=False)
    assert int(task.get_dataset(None, split="train", shuffle=False).cardinality()) == SOURCE_EXAMPLES + 5


def test_texts_and_numbers_have_no_length() -> None:
    found = Sample(task_of(lambda: numbers(1)), "train", ({"text": b"abc", "n": np.int32(1)},), whole=True)
    assert found.lengths("text") == found.lengths("n") == []
    assert (found.longest("text"), found.truncated("text", 1), found.padding("text", 1)) == (0, 0.0, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_packed_as_seqio_packs_them(seed: int) -> None:
    lengths = {"inputs": 16, "targets": 9}
    random = np.random.default_rng(seed)
    sizes = random.integers(1, [[20, 12]], size=(14, 2))
    examples = [{"inputs": np.ones(a, np.int32), "targets": np.ones(b, np.int32)} for a, b in sizes]
    signature = dict.fromkeys(lengths, TEXT)
    dataset = tf.data.Dataset.from_generator(lambda: iter(examples), output_signature=signature)
    packed = seqio.trim_and_pack_dataset(dataset, lengths)
    assert packed_rows(examples, lengths) == sum(1 for _ in packed)


@pytest.mark.parametrize(
    ("items", "period"),
    [("", None), ("a", None), ("ab", None), ("aa", 1), ("abab", 2), ("ababa", 2), ("abcab", None), ("aabaab", 3)],
)
def test_the_period_of_what_goes_round(items: str, period: int | None) -> None:
    assert period_of(items) == period


def test_the_end_of_a_source_is_found_or_its_rounds_are_counted() -> None:
    assert find_end(task_of(lambda: numbers(7)), role(), seconds=60) == SourceEnd(7, ended=True)
    rounds = find_end(task_of(lambda: numbers(4).repeat()), role(), seconds=60)
    assert rounds == SourceEnd(10_000, ended=False, period=4)
    assert rounds.rounds == 2500
    assert find_end(task_of(lambda: numbers(None)), role(), seconds=60) == SourceEnd(10_000, ended=False)


def test_a_second_run_in_a_process_watches_no_second_time_and_knows_the_lines_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = seqio.dataset_providers.DatasetProviderRegistry
    own = registry.add_provider.__func__
    monkeypatch.setattr(registry, "add_provider", registry.__dict__["add_provider"])
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    source = task_of(lambda: numbers(1)).source
    Registrations.record()
    seqio.TaskRegistry.add("first_run", source, {"targets": FEATURE})
    second = Registrations.record()
    assert registry.add_provider.__func__.in_place_of is own
    assert second.place("first_run") is not None
    assert second.place("unseen") is None
    with pytest.raises(DuplicateRegistration) as refused:
        seqio.TaskRegistry.add("first_run", source, {"targets": FEATURE})
    assert "first_run is registered twice: at " in refused.value.message


def test_the_name_of_a_task_given_as_an_object_is_known_if_it_is_registered() -> None:
    unknown = task_of(lambda: numbers(1))
    assert registered_name(role("sampled")) == "sampled"
    assert registered_name(role(unknown)) is None
    known = seqio.TaskRegistry.add("named_by_object", unknown.source, {"targets": FEATURE}, preprocessors=[])
    try:
        assert registered_name(role(known)) == "named_by_object"
        assert registered_name(role(known.replace())) is None, "another task of that name"
    finally:
        seqio.TaskRegistry.remove("named_by_object")


def test_the_converter_for_decoders_takes_what_has_a_length() -> None:
    decoders = seqio.DecoderFeatureConverter
    assert task_features(decoders, {"targets": 8}) == {"targets"}
    assert task_features(decoders, {"inputs": 8, "targets": 8}) == {"inputs", "targets"}
    assert task_features(decoders, ("inputs", "targets", "suffixes")) == {"inputs", "targets", "suffixes"}
    assert task_features(seqio.EncDecFeatureConverter, {"targets": 8}) == {"inputs", "targets"}
    assert task_features(None, {"targets": 8}) == set()


def test_the_preprocessor_that_raises_is_found_among_others() -> None:
    def odd(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.filter(lambda e: e["targets"][0] % 2 == 1)

    def strict(dataset: tf.data.Dataset) -> tf.data.Dataset:
        def one(e: Any) -> Any:
            tf.debugging.assert_none_equal(e["targets"][0], 41)
            return e

        return dataset.map(one)

    def last(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda e: e)

    found = example_at_fault(task_of(lambda: numbers(100), strict, last), role())
    assert found[0].startswith("example 41 of task sampled train (targets [41]")
    assert ") cannot be preprocessed: strict in " in found[0]
    assert found[2] == "correct strict, or drop such examples before it"
    behind = example_at_fault(task_of(lambda: numbers(100), odd, strict, last), role())
    after = "an example after 20 of task sampled train cannot be preprocessed: strict in "
    assert behind[0].startswith(after), "20 odd numbers come before 41"
    assert example_at_fault(task_of(lambda: numbers(10), strict), role()) is None


def waiting(*items: int) -> Callable[[], Iterator[int]]:
    """Returns a function that yields some items, and then waits until the process ends."""

    def give() -> Iterator[int]:
        yield from items
        threading.Event().wait()

    return give


SOON = {"keep": 2, "count": 5, "further": 1000}


@pytest.mark.parametrize(
    ("items", "bounds", "expected"),
    [
        pytest.param(lambda: "abc", {"keep": 5, "count": 0}, Reading(("a", "b", "c"), 3, True, False), id="to-the-end"),
        pytest.param(itertools.count, {"keep": 2, "count": 5}, Reading((0, 1), 5, False, False), id="no-more"),
        pytest.param(itertools.count, {"keep": 3, "count": 1}, Reading((0, 1, 2), 3, False, False), id="what-is-kept"),
        pytest.param(waiting(1, 2), {"keep": 5, "count": 0, "seconds": 1}, Reading((1, 2), 2, False, True), id="waits"),
        pytest.param(
            lambda: [threading.Event().wait()],
            {"keep": 5, "count": 0, "seconds": 0.05},
            Reading((), 0, False, True),
            id="never-made",
        ),
        pytest.param(itertools.count, {**SOON, "spare": 60}, Reading((0, 1), 1000, False, False), id="more-comes-soon"),
        pytest.param(waiting(*range(5)), {**SOON, "spare": 0.05}, Reading((0, 1), 5, False, False), id="more-is-late"),
    ],
)
def test_reading_stops_at_its_bounds(
    items: Callable[[], Iterable[Any]], bounds: dict[str, Any], expected: Reading[Any]
) -> None:
    assert read_within(items, **{"seconds": 60, **bounds}) == expected


@pytest.mark.parametrize(
    ("number", "bounds"), [(1, {"keep": 5, "count": 0}), (9, {**SOON, "spare": 60})], ids=["first", "behind-enough"]
)
def test_what_the_source_raises_is_raised_here(number: int, bounds: dict[str, Any]) -> None:
    def items() -> Iterator[int]:
        yield from range(number)
        raise KeyError("column")

    with pytest.raises(KeyError, match="column"):
        read_within(items, seconds=60, **bounds)
