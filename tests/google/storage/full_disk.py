"""A disk that is full, without one: what would take room fails as the system lets it fail."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import Any

import pytest

from t5x_harness.google.storage.disk import Reserve
from t5x_harness.google.storage.store import ObjectStore

__all__ = ["FullDisk"]

_WRITES = ("INSERT", "UPDATE", "DELETE")


class FullDisk:
    """Fills the disk under a store.

    Attributes:
      room: how many changes of the database fit; the reserve makes room for some.
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
