"""Calls that must not wait either work as usual or leave nothing behind; another thread waits for the disk."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from t5x_harness.google.storage import core, database
from t5x_harness.google.storage.errors import NoSuchResource, WouldWait
from t5x_harness.google.storage.store import ObjectStore


@contextmanager
def locked(store: ObjectStore) -> Iterator[None]:
    """Keeps the store's lock in another thread during the block."""
    with ThreadPoolExecutor(1) as other:
        other.submit(store._core.lock.acquire).result()
        try:
            yield
        finally:
            other.submit(store._core.lock.release).result()


def test_another_thread(store: ObjectStore, leftovers: Callable[[], list[str]]) -> None:
    store.write("data", "a", b"body")
    with locked(store):
        for call in (
            lambda: store.stat("data", "a", wait=False),
            lambda: store.open_read("data", "a", wait=False),
            lambda: store.open_write("data", "a", wait=False),
            lambda: store.write("data", "a", b"new", wait=False),
        ):
            with pytest.raises(WouldWait):
                call()
    writer = store.open_write("data", "a")
    writer.write(b"new")
    with locked(store), pytest.raises(WouldWait):
        writer.commit(wait=False)
    assert leftovers() == []
    assert store.open_read("data", "a").read() == b"body"


def test_a_file_from_outside_has_to_be_read(store: ObjectStore, tree: Path) -> None:
    (tree / "outside").write_bytes(b"from outside")
    for _ in range(2):
        with pytest.raises(WouldWait):
            store.stat("data", "outside", wait=False)
    assert store.stat("data", "outside").size == 12
    assert store.stat("data", "outside", wait=False).size == 12


def test_the_log_of_changes_does_not_grow_for_ever(
    store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = root / ".t5x-harness" / "storage.db-wal"
    sizes = []
    for number in range(400):
        store.write("data", f"object-{number % 40}", b"body")
        if number % 40 == 39:
            # The log of the first round is complete; the size of a later one depends on when its checkpoint ran.
            monkeypatch.setattr(database, "_CHANGES_KEPT", 20)
            store.write("data", "object-0", b"body")
            deadline = time.monotonic() + 60
            while store._core.database.wants_checkpoint and time.monotonic() < deadline:
                time.sleep(0.001)
            sizes.append(os.stat(log).st_size)
    assert sizes[-1] <= 2 * sizes[0]


def test_a_checkpoint_that_comes_too_late_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    monkeypatch.setattr(database, "_CHANGES_KEPT", 1)
    store = ObjectStore(tmp_path / "root")
    store.create_bucket("data")
    with store._core.lock:  # the checkpoint waits for this lock
        others = set(threading.enumerate())
        store.write("data", "a", b"body")
        (waiting,) = set(threading.enumerate()) - others
        store.close()
    waiting.join()
    assert failures == []


def test_a_thread_that_cannot_be_started_keeps_nobody_out(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_CHANGES_KEPT", 1)
    with monkeypatch.context() as patched:
        patched.setattr(core, "Thread", Mock(side_effect=RuntimeError("can't start new thread")))
        store.write("data", "a", b"body")
    with ThreadPoolExecutor(1) as other:
        assert other.submit(store.stat, "data", "a", wait=False).result().size == 4


def test_a_closed_store_keeps_nobody_waiting(root: Path) -> None:
    store = ObjectStore(root)
    store.close()
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:  # two: a thread may take its own lock again
        for pool in (first, second):
            asked = pool.submit(store.list, "data")
            assert isinstance(asked.exception(60), NoSuchResource | sqlite3.ProgrammingError)
