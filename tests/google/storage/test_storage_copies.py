"""Copies, compositions and multipart uploads of the XML API: objects that are built from others, or from parts."""

import hashlib

import pytest
from storing import content, crc32c_of, md5_of

from t5x_harness.google.storage.errors import Invalid, NoSuchResource, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import (
    Checksums,
    MultipartUpload,
    ObjectFields,
    Preconditions,
    SourceObject,
    UploadPart,
)


def test_a_copy_of_a_composition_is_one(store: ObjectStore) -> None:
    store.write("data", "a", b"1")
    store.compose("data", "b", [SourceObject("data", "a"), SourceObject("data", "a")])
    copied = store.copy(SourceObject("data", "b"), "data", "c")
    assert (copied.md5, copied.component_count, content(store, "c")) == (None, 2, b"11")


def test_a_composition_is_its_sources_one_after_the_other(store: ObjectStore) -> None:
    store.write("data", "a", b"hello ", ObjectFields(content_type="text/plain"))
    store.write("data", "b", b"world")
    sources = [SourceObject("data", "a"), SourceObject("data", "b")]
    composed = store.compose("data", "c", sources, ObjectFields(metadata={"k": "v"}))
    assert content(store, "c") == b"hello world"
    assert (composed.md5, composed.crc32c, composed.component_count) == (None, crc32c_of(b"hello world"), 2)
    assert composed.fields == ObjectFields(metadata={"k": "v"})  # only the given fields
    again = store.compose("data", "c", [SourceObject("data", "c"), *sources])  # appends to an object
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


LARGE = bytes(range(256)) * (5 << 12)  # the minimum size of a part other than the last


def send(store: ObjectStore, upload: MultipartUpload, number: int, data: bytes) -> UploadPart:
    with store.multiparts.open_part(upload.id, number) as writer:
        writer.write(data[:10])
        writer.write(data[10:])
        return writer.commit()


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def test_parts_in_any_order_become_one_object(store: ObjectStore, names, leftovers) -> None:
    fields = ObjectFields(content_type="x/y")
    upload = store.multiparts.start("data", "a/b", fields)
    last = send(store, upload, 7, b"last")
    first = send(store, upload, 2, LARGE)
    send(store, upload, 9, b"not named")
    assert names() == []
    assert [part.number for part in store.multiparts.get(upload.id).parts] == [2, 7, 9]
    assert (first.size, first.etag, first.checksums.md5) == (len(LARGE), md5(LARGE), md5_of(LARGE))
    written = store.multiparts.complete(upload.id, [(2, first.etag), (7, last.etag)])
    assert (written.md5, written.crc32c) == (None, crc32c_of(LARGE + b"last"))
    assert (written.fields, written.component_count) == (fields, None)
    assert content(store, "a/b") == LARGE + b"last"
    assert leftovers() == []
    assert store.copy(SourceObject("data", "a/b"), "data", "c").md5 is None
    with pytest.raises(NoSuchResource, match="The requested upload was not found"):
        store.multiparts.get(upload.id)


def test_a_part_that_is_sent_again_replaces_the_first(store: ObjectStore, leftovers) -> None:
    upload = store.multiparts.start("data", "a")
    send(store, upload, 1, b"first")
    send(store, upload, 1, b"second")
    with pytest.raises(Invalid) as caught:
        store.multiparts.complete(upload.id, [(1, md5(b"first"))])
    assert (caught.value.code, caught.value.message) == (
        "InvalidPart",
        f"Part 1 has the ETag {md5(b'second')}, not {md5(b'first')}.",
    )
    assert store.multiparts.complete(upload.id, [(1, md5(b"second"))]).size == 6
    assert leftovers() == []


def test_completions_that_are_refused_change_nothing(store: ObjectStore, names) -> None:
    upload = store.multiparts.start("data", "a")
    small, large, last = send(store, upload, 1, b"x"), send(store, upload, 2, LARGE), send(store, upload, 3, b"y")
    for parts, code, message in (
        ([], "MalformedXML", "An upload is completed with at least one part."),
        ([(3, last.etag), (2, large.etag)], "InvalidPartOrder", "The parts are not in ascending order."),
        ([(2, large.etag), (2, large.etag)], "InvalidPartOrder", "The parts are not in ascending order."),
        ([(1, small.etag), (4, "0")], "InvalidPart", "Part 4 was not uploaded."),
        (
            [(1, small.etag), (2, large.etag)],
            "EntityTooSmall",
            "Part 1 has 1 bytes: all but the last must have at least 5242880.",
        ),
    ):
        with pytest.raises(Invalid) as caught:
            store.multiparts.complete(upload.id, parts)
        assert (caught.value.code, caught.value.message) == (code, message)
    assert names() == []
    assert store.multiparts.complete(upload.id, [(2, large.etag), (3, last.etag)]).size == len(LARGE) + 1


def test_parts_that_are_refused(store: ObjectStore, leftovers) -> None:
    upload = store.multiparts.start("data", "a")
    for number in (0, 10_001):
        with pytest.raises(Invalid, match=f"Invalid part number {number}: it must be 1 to 10000"):
            store.multiparts.open_part(upload.id, number)
    with store.multiparts.open_part(upload.id, 1) as writer:
        writer.write(b"x")
        with pytest.raises(Invalid, match="doesn't match calculated CRC32C"):
            writer.commit(Checksums(crc32c="AAAAAA=="))
    with pytest.raises(NoSuchResource):
        store.multiparts.open_part("nothing", 1)
    assert store.multiparts.get(upload.id).parts == ()
    assert leftovers() == []


def test_uploads_are_listed(store: ObjectStore) -> None:
    store.create_bucket("other")
    started = [store.multiparts.start("data", name) for name in ("b", "a", "b")]
    store.multiparts.start("other", "c")
    assert store.multiparts.all("data") == [started[1], started[0], started[2]]
    with pytest.raises(NoSuchResource, match="The specified bucket does not exist"):
        store.multiparts.all("nothing")
