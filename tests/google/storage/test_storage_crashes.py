"""A store that is killed, or whose disk is full or damaged, loses nothing acknowledged, and shows no partial change."""

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.google.storage.disk import Reserve, is_full
from t5x_harness.google.storage.errors import CannotOpen, NoSuchResource
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject, StoredObject

_WRITES = ("INSERT", "UPDATE", "DELETE")


class FullDisk:
    """Fills the disk under a store.

    Attributes:
      room: the number of database changes that still fit; the reserve makes room for a few more.
    """

    def __init__(self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, *, reserve: int = 4) -> None:
        self.room = 0
        execute, give, write = store._core.database._execute, Reserve.give, os.write

        def execute_if_there_is_room(statement: str, *arguments: Any) -> Any:
            if statement.startswith(_WRITES):
                if not self.room:
                    error = sqlite3.OperationalError("database or disk is full")
                    error.sqlite_errorcode = sqlite3.SQLITE_FULL
                    raise error
                self.room -= 1
            return execute(statement, *arguments)

        def give_room(kept: Reserve) -> bool:
            given = give(kept)
            self.room += reserve * given
            return given

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def write_to_pipes_only(descriptor: int, data: bytes) -> int:
            return full() if "/incoming/" in os.readlink(f"/proc/self/fd/{descriptor}") else write(descriptor, data)

        monkeypatch.setattr(store._core.database, "_execute", execute_if_there_is_room)
        monkeypatch.setattr(Reserve, "give", give_room)
        monkeypatch.setattr(os, "write", write_to_pipes_only)
        monkeypatch.setattr(os, "pwrite", full)


def test_killed_before_every_step_to_the_disk(tmp_path: Path) -> None:
    script = Path(__file__).with_name("crash_everywhere.py")
    done = subprocess.run([sys.executable, script, tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100  # operations on the disk; far fewer would mean that they are no longer detected


@pytest.fixture
def before(store: ObjectStore) -> dict[str, StoredObject]:
    fields = ObjectFields(content_type="x/y")
    return {name: store.write("data", name, name.encode(), fields) for name in ("a", "a/b", "c/d", "e//")}


def refused(store: ObjectStore, call) -> None:
    with pytest.raises((OSError, sqlite3.Error)) as caught:
        call()
    assert is_full(caught.value)
    refusal = store.refusal(caught.value)
    root = store._core.layout.root
    assert (refusal.status, refusal.reason) == (403, "insufficientStorage")
    assert refusal.message in (
        f"no space left in {root}, where this emulated Cloud Storage keeps its buckets: remove files or objects, or "
        "serve another folder",
        f"{root}, where this emulated Cloud Storage keeps its buckets: database or disk is full",
    )


def test_what_is_new_is_refused_and_leaves_nothing(store: ObjectStore, before, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = store.uploads.start("data", "upload")
    store.uploads.append(upload.id, 0, b"kept")
    parts = store.multiparts.start("data", "parts")
    with monkeypatch.context() as full:
        FullDisk(store, full)
        for call in (
            lambda: store.write("data", "new", b"x"),
            lambda: store.write("data", "a", b""),
            lambda: store.patch("data", "a", ObjectFields(content_type="new/type")),
            lambda: store.uploads.start("data", "new"),
            lambda: store.uploads.append(upload.id, 4, b"more"),
            lambda: store.uploads.finish(upload.id),
            lambda: store.multiparts.start("data", "new"),
            lambda: store.multiparts.open_part(parts.id, 1).write(b"x"),
            lambda: store.create_bucket("more"),
            lambda: store.move(SourceObject("data", "c/d"), "c"),
            lambda: store.move(SourceObject("data", "a/b"), "new"),
            lambda: store.move(SourceObject("data", "e//"), "e"),
            lambda: store.patch_bucket("data", {"labels": {"a": "b"}}),
        ):
            refused(store, call)
            assert {found.name: found for found in store.list("data").objects} == before
        assert [bucket.name for bucket in store.buckets()] == ["data"]
    assert store.uploads.get(upload.id).received == 4
    store.uploads.append(upload.id, 4, b"more")
    assert store.uploads.finish(upload.id).size == 8


def test_objects_are_read_and_deleted(
    store: ObjectStore, tree: Path, before, names, leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "outside").write_bytes(b"from outside")
    (tree / "c" / "d").unlink()
    with monkeypatch.context() as full:
        FullDisk(store, full, reserve=8)
        for _ in range(2):
            assert names() == ["a", "a/b", "e//", "outside"]
            with pytest.raises(NoSuchResource):
                store.stat("data", "c/d")
        seen = store.stat("data", "outside")
        with store.open_read("data", "outside", Preconditions(generation=seen.generation)) as reader:
            assert reader.read() == b"from outside"
        for name in ("a", "e//"):
            store.delete("data", name)
        assert names() == ["a/b", "outside"]
    store.delete("data", "outside")
    assert store.stat("data", "a/b") == before["a/b"]
    assert leftovers() == []


def test_a_delete_that_is_refused_has_removed_nothing(
    store: ObjectStore, before, leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        FullDisk(store, full, reserve=0)
        for name in ("a", "e//"):
            refused(store, lambda name=name: store.delete("data", name))
        assert {found.name: found for found in store.list("data").objects} == before
    assert leftovers() == []
    with store.open_read("data", "a") as reader:
        assert reader.read() == b"a"


@pytest.mark.usefixtures("before")
def test_a_delete_that_is_recorded_is_not_refused_for_what_comes_after(
    store: ObjectStore, tree: Path, names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``a/b`` waits aside until ``a`` is deleted, and has to stay there while there is no room to record its move."""
    with monkeypatch.context() as full:
        FullDisk(store, full, reserve=2)  # enough for the clock and for the object
        store.delete("data", "a")
        assert names() == ["a/b", "c/d", "e//"]
        assert not (tree / "a" / "b").is_file()
    assert names() == ["a/b", "c/d", "e//"]
    assert (tree / "a" / "b").read_bytes() == b"a/b"


def test_a_damaged_database_is_said_in_a_line(root: Path) -> None:
    with ObjectStore(root) as store:
        store.create_bucket("data")
    database = root / ".t5x-harness" / "storage.db"
    database.write_bytes(b"no database at all")
    for _ in range(2):
        with pytest.raises(CannotOpen) as caught:
            ObjectStore(root)
        assert str(caught.value) == (
            f"{database} is damaged (file is not a database). Without it the files in {root}/buckets are still "
            "objects, but what was recorded of them and of unfinished uploads is lost: move it away, or serve another "
            "folder"
        )


def test_a_folder_that_cannot_be_made_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotOpen, match=f"{tmp_path}/file/root, where this .* keeps its buckets: Not a directory"):
        ObjectStore(tmp_path / "file" / "root")


def test_a_killed_server_leaves_no_log_for_the_next_but_one(root: Path) -> None:
    log = root / ".t5x-harness" / "storage.db-wal"
    store = ObjectStore(root)
    store.create_bucket("data")
    copies = []
    for _ in range(3):
        for number in range(50):
            store.write("data", f"{number}", b"x")
        copies.append(((log.parent / "storage.db").read_bytes(), log.read_bytes()))
        store.close()  # the next lines restore the files that a kill would leave
        (log.parent / "storage.db").write_bytes(copies[-1][0])
        log.write_bytes(copies[-1][1])
        store = ObjectStore(root)
        assert log.stat().st_size == 0
        assert len(store.list("data").objects) == 50
    store.close()
    assert len(copies[-1][1]) < 2 * len(copies[0][1])
