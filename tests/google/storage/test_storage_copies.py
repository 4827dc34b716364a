"""Copies and compositions."""

from __future__ import annotations

import pytest

from t5x_harness.google.storage.checksums import Digest
from t5x_harness.google.storage.errors import Invalid, NoSuchResource, NotModified, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject


def content(store: ObjectStore, name: str, bucket: str = "data") -> bytes:
    with store.open_read(bucket, name) as reader:
        return reader.read()


def crc32c(data: bytes) -> str | None:
    digest = Digest()
    digest.update(data)
    return digest.checksums.crc32c


def test_a_copy_has_the_bytes_and_fields_of_its_source(store: ObjectStore) -> None:
    store.create_bucket("other")
    source = store.write("data", "a", b"hello", ObjectFields(content_type="x/y", metadata={"k": "v"}))
    copied = store.copy(SourceObject("data", "a"), "other", "b//c")
    assert (copied.md5, copied.crc32c, copied.size, copied.fields) == (
        source.md5,
        source.crc32c,
        source.size,
        source.fields,
    )
    assert copied.generation > source.generation
    assert content(store, "b//c", "other") == b"hello"
    renamed = store.copy(SourceObject("data", "a"), "data", "a", ObjectFields(content_type="z"))
    assert renamed.fields == ObjectFields(content_type="z")


def test_a_copy_of_a_composition_is_one(store: ObjectStore) -> None:
    store.write("data", "a", b"1")
    store.compose("data", "b", [SourceObject("data", "a"), SourceObject("data", "a")])
    copied = store.copy(SourceObject("data", "b"), "data", "c")
    assert (copied.md5, copied.component_count, content(store, "c")) == (None, 2, b"11")


def test_conditions_of_copies(store: ObjectStore, leftovers) -> None:
    source = store.write("data", "a", b"1")
    there = store.write("data", "b", b"2")
    for wrong, condition, error in (
        (SourceObject("data", "a", Preconditions(generation_match=1)), {}, PreconditionFailed),
        (
            SourceObject("data", "a", Preconditions(generation_not_match=source.generation)),
            {},
            NotModified,
        ),
        (SourceObject("data", "a", Preconditions(generation=1)), {}, NoSuchResource),
        (SourceObject("data", "nothing"), {}, NoSuchResource),
        (SourceObject("data", "a"), {"generation_match": 0}, PreconditionFailed),
        (SourceObject("data", "a"), {"metageneration_not_match": 1}, NotModified),
    ):
        with pytest.raises(error):
            store.copy(wrong, "data", "b", preconditions=Preconditions(**condition))
    assert store.stat("data", "b") == there
    assert leftovers() == []


def test_a_composition_is_its_sources_one_after_the_other(store: ObjectStore) -> None:
    store.write("data", "a", b"hello ", ObjectFields(content_type="text/plain"))
    store.write("data", "b", b"world")
    sources = [SourceObject("data", "a"), SourceObject("data", "b")]
    composed = store.compose("data", "c", sources, ObjectFields(metadata={"k": "v"}))
    assert content(store, "c") == b"hello world"
    assert (composed.md5, composed.crc32c, composed.component_count) == (None, crc32c(b"hello world"), 2)
    assert composed.fields == ObjectFields(metadata={"k": "v"})  # only what is said
    again = store.compose("data", "c", [SourceObject("data", "c"), *sources])  # appends to itself
    assert (content(store, "c"), again.component_count) == (b"hello worldhello world", 4)
    overwritten = store.write("data", "c", b"plain")
    assert (overwritten.component_count, overwritten.md5 is None) == (None, False)


def test_compositions_that_are_refused(store: ObjectStore, names, leftovers) -> None:
    store.create_bucket("other")
    store.write("data", "a", b"1")
    source = SourceObject("data", "a")
    for count in (0, 33):
        with pytest.raises(Invalid) as caught:
            store.compose("data", "c", [source] * count)
        assert caught.value.message == (f"The number of source components provided ({count}) must be between 1 and 32")
    with pytest.raises(Invalid, match="Objects are composed of objects of the same bucket, other"):
        store.compose("other", "c", [source])
    with pytest.raises(NoSuchResource, match="No such object: data/nothing"):
        store.compose("data", "c", [source, SourceObject("data", "nothing")])
    with pytest.raises(PreconditionFailed):
        store.compose("data", "c", [SourceObject("data", "a", Preconditions(generation_match=1))])
    with pytest.raises(PreconditionFailed):
        store.compose("data", "a", [source], preconditions=Preconditions(generation_match=0))
    with pytest.raises(Invalid, match="it must not be"):
        store.compose("data", "..", [source])
    assert names() == ["a"]
    assert leftovers() == []
    assert store.compose("data", "c", [source] * 32).size == 32
