"""One controller for the jobs of a request: a second one is refused, and shown who has it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO

from t5x_harness.auxiliary.errors import AuxiliaryError
from t5x_harness.auxiliary.jobs import FOLDER
from t5x_harness.auxiliary.place import LocalPlace, Place

_RENEWED_AFTER, _LOST_AFTER = 20.0, 120.0


class Lock:
    """What shows other controllers that this one works; use :func:`locked`."""

    def renew(self) -> None:
        """Shows it anew, if it is time to.

        Raises:
          AuxiliaryError: another controller has taken over.
        """


@contextlib.contextmanager
def locked(place: Place, name: str) -> Iterator[Lock]:
    """Keeps other controllers out for the time of the block.

    On this machine the kernel holds the lock, and frees it when the process ends in whatever way. In a bucket it is an
    object that is written anew from time to time, each time only if nobody else has written it: of a killed controller
    it is free at once on its own machine, and elsewhere after two minutes.

    Args:
      place: the train job's folder.
      name: of the request.

    Raises:
      AuxiliaryError: another controller has it.
      StorageError: the bucket is not there, or refuses.
    """
    file = f"{FOLDER}/{name}/controller.json"
    if isinstance(place, LocalPlace):
        path = place.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+", encoding="utf-8") as opened:
            _take(opened, place.address)
            yield Lock()
            opened.truncate(0)
        return
    lock = _ObjectLock(place, file)
    try:
        yield lock
    finally:
        lock.release()


def _take(file: IO[str], address: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise AuxiliaryError(_taken(address, file.read())) from None
    file.truncate(0)
    file.write(_self())
    file.flush()


class _ObjectLock(Lock):
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        version = place.create(name, _self().encode())
        if version is None:
            version = self._take_over()
        self._version = version
        self._renewed = time.monotonic()

    def renew(self) -> None:
        if time.monotonic() - self._renewed < _RENEWED_AFTER:
            return
        version = self._place.replace(self._name, _self().encode(), self._version)
        if version is None:
            raise AuxiliaryError(
                f"{self._place.address}/{self._name}: another controller has taken over, as this one was silent for "
                "long; it ends, and its jobs go on"
            )
        self._version, self._renewed = version, time.monotonic()

    def release(self) -> None:
        found = self._place.read(self._name)
        if found is not None and found[1] == self._version:
            self._place.delete(self._name)

    def _take_over(self) -> int:
        found = self._place.read(self._name)
        if found is None:  # it was freed just now
            version = self._place.create(self._name, _self().encode())
        else:
            holder = found[0].decode()
            if not _is_gone(holder):
                raise AuxiliaryError(_taken(self._place.address, holder))
            version = self._place.replace(self._name, _self().encode(), found[1])
        if version is None:
            raise AuxiliaryError(_taken(self._place.address, (self._place.read(self._name) or (b"",))[0].decode()))
        return version


def _self() -> str:
    seen = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "seen": seen})


def _is_gone(holder: str) -> bool:
    """Returns whether a controller has ended: its process on this machine is not there, or it was silent for long."""
    try:
        about = json.loads(holder)
        if about["host"] == socket.gethostname() and not os.path.exists(f"/proc/{int(about['pid'])}"):
            return True
        return (datetime.now(UTC) - datetime.fromisoformat(about["seen"])).total_seconds() > _LOST_AFTER
    except (ValueError, KeyError, TypeError):
        return True


def _taken(address: str, holder: str) -> str:
    try:
        about = json.loads(holder)
        who = f"process {about['pid']} on {about['host']}, last seen {about['seen']}"
    except (ValueError, KeyError, TypeError):
        who = "a process that has not said which"
    return (
        f"{address}: another controller has these auxiliary jobs: {who}. Leave them to it, end it first, or give "
        "--name=NAME for jobs of their own"
    )
