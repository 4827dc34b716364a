"""Locks a folder, on this machine or in a bucket, for one writer; a second one gets an error that names the holder."""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from t5x_harness.buckets.folders import AnyFolder, LocalFolder, StorageError

_RENEWED_AFTER, _LOST_AFTER = 20.0, 120.0

Refusal = Callable[[str], Exception]
"""Makes the error for a refused lock from a description of its holder."""


class Lock:
    """A held lock; made by :func:`locked`."""

    def renew(self) -> None:
        """Makes sure that the lock is still held; call it before each step that only the holder may take.

        Raises:
          Exception: the refusal's error: another process has taken over, because this one was stopped for a long time.
          StorageError: the bucket does not exist, or refuses.
        """


@contextlib.contextmanager
def locked(place: AnyFolder, name: str, refusal: Refusal) -> Iterator[Lock]:
    """Holds a lock during the block.

    On this machine the kernel holds the lock, and frees it when the process ends in any way. In a bucket the lock is an
    object that a thread rewrites from time to time, each time only if no other process has written it. After a kill it
    is free at once on the same machine, and elsewhere after two minutes.

    Args:
      place: the folder.
      name: the name of a file in it, which exists as long as the lock is held.
      refusal: a function that makes the error that is raised if another process has the lock.

    Raises:
      Exception: the refusal's error.
      OSError: the file cannot be written on this machine.
      StorageError: the bucket does not exist, or refuses.
    """
    if isinstance(place, LocalFolder):
        with _file_locked(place.folder / name, refusal):
            yield Lock()
        return
    lock = _ObjectLock(place, name, refusal)
    try:
        yield lock
    finally:
        lock.release()


@contextlib.contextmanager
def _file_locked(path: Path, refusal: Refusal) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        while True:
            file = opened.enter_context(open(path, "a+", encoding="utf-8"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise refusal(_described(file.read())) from None
            with contextlib.suppress(FileNotFoundError):  # the last holder has just removed it
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    break
        file.truncate(0)
        file.write(_holder())
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


class _ObjectLock(Lock):
    def __init__(self, place: AnyFolder, name: str, refusal: Refusal) -> None:
        self._place, self._name, self._refusal = place, name, refusal
        self._id = uuid.uuid4().hex
        self._one_at_a_time = threading.Lock()
        found = place.read_version(name)
        if found is not None and not _is_gone(found[0].decode()):
            raise refusal(_described(found[0].decode()))
        content = _holder(self._id).encode()
        self._note(place.create(name, content) if found is None else place.replace(name, content, found[1]))
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._keep, name="lock", daemon=True)
        self._renewing.start()

    def renew(self) -> None:
        """Rewrites the object if it is time to."""
        with self._one_at_a_time:
            if time.monotonic() - self._renewed >= _RENEWED_AFTER:
                content = _holder(self._id).encode()
                self._note(self._place.replace(self._name, content, self._version), ", as this one was silent for long")

    def release(self) -> None:
        """Removes the object, unless another process has taken over."""
        self._ended.set()
        self._renewing.join()
        with contextlib.suppress(StorageError):  # the lock is free after two minutes anyway
            found = self._place.read_version(self._name)
            if found is not None and found[1] == self._version:
                self._place.delete(self._name)

    def _keep(self) -> None:
        while not self._ended.wait(_RENEWED_AFTER / 2):
            try:
                self.renew()
            except StorageError:  # it is tried again, and a holder that writes also calls renew
                continue
            except Exception:  # the refusal's error, which the holder's next call raises
                return

    def _note(self, version: int | None, why: str = "") -> None:
        """Notes the version that was written, even if a client's second attempt was refused because of its first."""
        if version is None:
            content, version = self._place.read_version(self._name) or (b"", 0)
            if self._id not in content.decode():
                raise self._refusal(f"{_described(content.decode())}{why}")
        self._version, self._renewed = version, time.monotonic()


def _holder(identity: str = "") -> str:
    seen = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "seen": seen, "id": identity})


def _is_gone(holder: str) -> bool:
    """Tells whether a holder has ended: its process on this machine is gone, or it was silent for too long."""
    try:
        about = json.loads(holder)
        if about["host"] == socket.gethostname() and not os.path.exists(f"/proc/{int(about['pid'])}"):
            return True
        return (datetime.now(UTC) - datetime.fromisoformat(about["seen"])).total_seconds() > _LOST_AFTER
    except (ValueError, KeyError, TypeError):
        return True


def _described(holder: str) -> str:
    try:
        about = json.loads(holder)
        return f"process {about['pid']} on {about['host']}, last seen {about['seen']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown process"
