"""Resumable uploads lose nothing that was acknowledged, and end only once."""

import time
from pathlib import Path

import pytest
from storing import content, md5_of

from t5x_harness.google.storage import uploads
from t5x_harness.google.storage.errors import Invalid, NoSuchResource, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import Checksums, ObjectFields, Preconditions


def test_a_client_that_lost_an_answer_sends_bytes_again(store: ObjectStore) -> None:
    upload = store.uploads.start("data", "a")
    store.uploads.append(upload.id, 0, b"0123")
    assert store.uploads.append(upload.id, 0, b"01") == 4
    assert store.uploads.append(upload.id, 2, b"234567") == 8
    with pytest.raises(Invalid, match="The upload has 8 bytes: byte 9 cannot follow"):
        store.uploads.append(upload.id, 9, b"9")
    assert store.uploads.finish(upload.id, Checksums(md5=md5_of(b"01234567")))
    assert content(store, "a") == b"01234567"


def test_a_finished_upload_says_again_what_it_wrote(root: Path) -> None:
    with ObjectStore(root) as store:
        store.create_bucket("data")
        upload = store.uploads.start("data", "a", ObjectFields(metadata={"k": "v"}))
        store.uploads.append(upload.id, 0, b"1")
        written = store.uploads.finish(upload.id)
        store.write("data", "a", b"overwritten since")
    with ObjectStore(root) as store:
        assert store.uploads.finish(upload.id) == written
        found = store.uploads.get(upload.id)
        assert (found.finished, found.received) == (written, 1)
        assert store.uploads.append(upload.id, 0, b"1") == 1  # sent by a client that does not know of its end
        with pytest.raises(Invalid, match="The upload of data/a is finished"):
            store.uploads.append(upload.id, 1, b"2")
        assert content(store, "a") == b"overwritten since"


@pytest.mark.parametrize("cut", [0, 1, 5, 10])
def test_uploads_go_on_after_a_restart(root: Path, cut: int) -> None:
    data = b"0123456789"
    fields = ObjectFields(content_type="x/y", metadata={"a": "b"})
    condition = Preconditions(generation_match=0)
    expected = Checksums(md5=md5_of(data))
    with ObjectStore(root) as store:
        store.create_bucket("data")
        upload = store.uploads.start("data", "a", fields, condition, expected)
        store.uploads.append(upload.id, 0, data[:cut])
    with ObjectStore(root) as store:
        found = store.uploads.get(upload.id)
        assert (found.received, found.fields, found.preconditions, found.expected) == (cut, fields, condition, expected)
        store.uploads.append(upload.id, cut, data[cut:])
        assert store.uploads.finish(upload.id).fields == fields
        assert content(store, "a") == data


@pytest.mark.parametrize("said", ["at the start", "at the end"])
def test_an_upload_that_does_not_add_up_leaves_nothing(store: ObjectStore, leftovers, names, said: str) -> None:
    wrong = Checksums(crc32c="AAAAAA==")
    upload = store.uploads.start("data", "a", expected=wrong if said == "at the start" else Checksums())
    store.uploads.append(upload.id, 0, b"hello")
    with pytest.raises(Invalid, match="doesn't match calculated CRC32C"):
        store.uploads.finish(upload.id, wrong if said == "at the end" else Checksums())
    assert names() == leftovers() == []
    with pytest.raises(NoSuchResource):
        store.uploads.get(upload.id)


def test_conditions_are_judged_at_the_start_and_at_the_end(store: ObjectStore, leftovers) -> None:
    condition = Preconditions(generation_match=0)
    upload = store.uploads.start("data", "a", preconditions=condition)
    winner = store.write("data", "a", b"faster")
    with pytest.raises(PreconditionFailed):
        store.uploads.start("data", "a", preconditions=condition)
    with pytest.raises(PreconditionFailed):
        store.uploads.finish(upload.id)
    assert store.stat("data", "a") == winner
    assert leftovers() == []


def test_a_cancelled_upload_is_gone(store: ObjectStore, leftovers, names) -> None:
    upload = store.uploads.start("data", "a")
    store.uploads.append(upload.id, 0, b"x")
    store.uploads.cancel(upload.id)
    for attempt in (
        lambda: store.uploads.get(upload.id),
        lambda: store.uploads.append(upload.id, 1, b"y"),
        lambda: store.uploads.finish(upload.id),
        lambda: store.uploads.cancel(upload.id),
    ):
        with pytest.raises(NoSuchResource, match=f"No such upload: {upload.id}"):
            attempt()
    assert names() == leftovers() == []


def test_uploads_expire_after_a_week(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, day = time.time_ns(), 24 * 3600 * 10**9
    with ObjectStore(root) as store:
        store.create_bucket("data")
        old = store.uploads.start("data", "a")
        monkeypatch.setattr("time.time_ns", lambda: now + 6 * day)
        young = store.uploads.start("data", "a")
    monkeypatch.setattr("time.time_ns", lambda: now + 8 * day)
    with ObjectStore(root) as store:
        store.uploads.get(young.id)
        with pytest.raises(NoSuchResource):
            store.uploads.get(old.id)
    assert [path.name for path in (root / ".t5x-harness" / "incoming").iterdir()] == [young.id]


def test_an_upload_whose_bucket_is_made_anew_while_it_ends(
    store: ObjectStore, names, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = store.uploads.start("data", "a")

    def make_the_bucket_anew(*_: object) -> None:
        store.delete_bucket("data")
        store.create_bucket("data")

    monkeypatch.setattr(uploads, "verify", make_the_bucket_anew)
    with pytest.raises(NoSuchResource, match=f"No such upload: {upload.id}"):
        store.uploads.finish(upload.id)
    assert names() == []
