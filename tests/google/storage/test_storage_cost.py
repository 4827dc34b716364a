"""What a small object costs, counted: it is what most of the time goes into, and grows without being seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.google.storage.store import ObjectStore


@pytest.fixture
def statements(store: ObjectStore) -> list[str]:
    """The first word of every statement that the database is asked from now on."""
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
    assert kept == {"storage.db", "storage.db-wal"}  # with other readers in mind, SQLite has a storage.db-shm
