"""A store admits one process at a time, and needs few statements for small objects."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.google.storage.errors import CannotOpen, InUse
from t5x_harness.google.storage.store import ObjectStore


def test_one_process_at_a_time_and_the_other_is_named(root: Path) -> None:
    code = f"import pathlib; from t5x_harness.google.storage.store import *; ObjectStore(pathlib.Path({str(root)!r}))"
    with ObjectStore(root):
        refused = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
        assert f"InUse: {root} is being served by process {os.getpid()} (" in refused.stderr
        assert "end it, or name another folder" in refused.stderr
        with pytest.raises(InUse):
            ObjectStore(root)
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_closed_twice_it_leaves_others_descriptors_alone(root: Path) -> None:
    store = ObjectStore(root)
    store.close()
    with ObjectStore(root):  # its descriptors have the same numbers as those of the first store
        store.close()
        with pytest.raises(InUse):
            ObjectStore(root)


def test_a_store_of_another_release_is_refused(root: Path) -> None:
    with ObjectStore(root) as store:
        store._core.database._execute("PRAGMA user_version = 99")
    for _ in range(2):  # the first attempt must not keep the lock on the folder
        with pytest.raises(CannotOpen) as caught:
            ObjectStore(root)
        assert str(caught.value) == (
            f"{root}/.t5x-harness/storage.db has layout 99 of another release, this one reads 2: name another folder"
        )


@pytest.fixture
def statements(store: ObjectStore) -> list[str]:
    """The first word of every statement that the database executes from now on."""
    found: list[str] = []
    store._core.database._connection.set_trace_callback(lambda statement: found.append(statement.split()[0]))
    return found


def test_a_write_is_one_look_and_one_change(store: ObjectStore, statements: list[str]) -> None:
    store.write("data", "a", b"new", wait=False)
    store.write("data", "a", b"in its place", wait=False)
    store.write("data", "folder/b", b"in a folder that has to be made", wait=False)
    assert statements == 3 * ["SELECT", "INSERT"]


def test_a_read_is_one_look(store: ObjectStore, statements: list[str]) -> None:
    store.write("data", "a", b"new")
    statements.clear()
    store.stat("data", "a", wait=False)
    store.open_read("data", "a", wait=False).close()
    assert statements == 2 * ["SELECT"]


def test_the_system_is_not_asked_for_locks_and_shared_memory(store: ObjectStore, root: Path) -> None:
    store.write("data", "a", b"new")
    kept = {path.name for path in (root / ".t5x-harness").glob("storage.db*")}
    assert kept == {"storage.db", "storage.db-wal"}  # for other readers, SQLite would have a storage.db-shm
