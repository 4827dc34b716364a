"""Objects are written and read as streams, with checksums, generations, fields and conditions."""

import base64
import os
import threading
from pathlib import Path

import pytest
from storing import content, md5_of

from t5x_harness.google.storage import streams
from t5x_harness.google.storage.errors import NoSuchResource, NotModified, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions


def test_what_is_written_is_read_and_is_a_file(store: ObjectStore, tree: Path) -> None:
    fields = ObjectFields(content_type="text/plain", metadata={"a": "b"})
    with store.open_write("data", "models/t5/checkpoint", fields) as writer:
        writer.write(b"1234")
        writer.write(b"56789")
        written = writer.commit()
    assert written.size == 9
    assert written.metageneration == 1
    assert written.created == written.updated == written.generation
    assert written.md5 == md5_of(b"123456789")
    assert written.crc32c == base64.b64encode(0xE3069283.to_bytes(4, "big")).decode()
    assert written.fields == fields
    assert store.stat("data", "models/t5/checkpoint") == written
    assert content(store, "models/t5/checkpoint") == b"123456789"
    assert (tree / "models" / "t5" / "checkpoint").read_bytes() == b"123456789"


@pytest.mark.parametrize("deleted", ["", "c", "cba"])
def test_generations_grow_in_the_store_and_over_restarts(
    root: Path, deleted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ObjectStore(root) as store:
        store.create_bucket("data")
        generations = [store.write("data", name, b"").generation for name in "aabc"]
        for name in deleted:
            store.delete("data", name)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)  # the clock was set back
    with ObjectStore(root) as store:
        generations += [store.write("data", name, b"").generation for name in "ca"]
    assert generations == sorted(set(generations))


def test_a_patch_changes_what_it_says_and_an_update_the_rest_too(store: ObjectStore) -> None:
    before = store.write("data", "a", b"1", ObjectFields(content_type="x/y", metadata={"a": "1", "b": "2"}))
    patched = store.patch("data", "a", ObjectFields(cache_control="no-store", metadata={"a": None, "c": "3"}))
    assert patched.generation == before.generation
    assert patched.metageneration == 2
    assert patched.updated > before.updated
    assert patched.fields == ObjectFields(content_type="x/y", cache_control="no-store", metadata={"b": "2", "c": "3"})
    cleared = store.patch("data", "a", ObjectFields(metadata={"d": "4"}), clear=["content_type", "metadata"])
    assert cleared.metageneration == 3
    assert cleared.fields == ObjectFields(cache_control="no-store", metadata={"d": "4"})
    assert store.stat("data", "a") == cleared


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ({"generation_match": 1}, PreconditionFailed),
        ({"generation_match": 0}, PreconditionFailed),
        ({"metageneration_match": 7}, PreconditionFailed),
        ({"generation_not_match": "live"}, NotModified),
        ({"metageneration_not_match": 1}, NotModified),
    ],
)
def test_conditions_that_do_not_hold_change_nothing(store: ObjectStore, leftovers, condition, error) -> None:
    before = store.write("data", "a", b"before")
    wanted = Preconditions(**{k: before.generation if v == "live" else v for k, v in condition.items()})
    for attempt in (
        lambda: store.write("data", "a", b"after", preconditions=wanted),
        lambda: store.patch("data", "a", ObjectFields(content_type="x/y"), preconditions=wanted),
        lambda: store.delete("data", "a", preconditions=wanted),
        lambda: store.open_read("data", "a", preconditions=wanted),
        lambda: store.stat("data", "a", preconditions=wanted),
    ):
        with pytest.raises(error):
            attempt()
    assert store.stat("data", "a") == before
    assert content(store, "a") == b"before"
    assert leftovers() == []


def test_conditions_that_hold(store: ObjectStore) -> None:
    first = store.write("data", "a", b"1", preconditions=Preconditions(generation_match=0))
    second = store.write("data", "a", b"2", preconditions=Preconditions(generation_match=first.generation))
    store.stat("data", "a", preconditions=Preconditions(generation_not_match=first.generation))
    store.delete("data", "a", preconditions=Preconditions(second.generation, metageneration_match=1))
    with pytest.raises(NoSuchResource):  # Google returns this for any condition
        store.delete("data", "a", preconditions=Preconditions(generation_match=second.generation))


def test_objects_share_no_metadata(store: ObjectStore) -> None:
    for name in ("a", "b"):
        store.write("data", name, b"", ObjectFields(metadata={"k": "v"}))
    changed = store.stat("data", "a").fields.metadata
    assert isinstance(changed, dict)
    changed["k"] = "of a alone"
    assert store.stat("data", "b").fields.metadata == {"k": "v"}


def test_a_writer_that_is_dropped_while_a_thread_writes(
    store: ObjectStore, leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor stays open until the thread is done; otherwise, its number might already be another file's."""
    writer = store.open_write("data", "a")
    lock, waits, order = writer._in_use, threading.Event(), []

    class Watched:
        def __enter__(self) -> None:
            if lock.locked():
                waits.set()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def write_while_dropped(fd: int, _data: bytes) -> None:
        dropping.start()
        assert waits.wait(60)
        order.append(os.fstat(fd).st_size)

    def drop() -> None:
        writer.abort()
        order.append("dropped")

    dropping = threading.Thread(target=drop)
    monkeypatch.setattr(writer, "_in_use", Watched())
    monkeypatch.setattr(streams, "write_all", write_while_dropped)
    writer.write(b"x")
    dropping.join()
    assert order == [0, "dropped"]
    assert leftovers() == []
    with pytest.raises(ValueError, match="the body was dropped"):
        writer.write(b"x")
