"""Which server runs which job, where several look at the same state; and what becomes of jobs whose server is gone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from t5x_harness.google.vertex.jobs import endings
from t5x_harness.google.vertex.jobs.endings import State
from t5x_harness.google.vertex.jobs.publishing import publish
from t5x_harness.google.vertex.messages.names import collection_of
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import Services

_ASPECT = "owner"
_SERVERS = "vertex-servers"
# How often a server says that it lives and looks for what others ask of it, and how long others believe it.
_BEAT_SECONDS = 0.25
_SILENT_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Owner:
    """A server.

    Attributes:
      host: the machine that it runs on.
      started: when that process began, in the kernel's ticks; tells it from a later one with the same pid.
    """

    id: str
    host: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> Self:
        return cls(uuid.uuid4().hex, socket.gethostname(), os.getpid(), _started(os.getpid()))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        return cls(**json.loads(data))

    def to_bytes(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def beat_key(self) -> str:
        """Where it says when it was last alive."""
        return f"{_SERVERS}/{self.id}#beat"

    @property
    def cancel_key(self) -> str:
        """The set of jobs that others ask it to cancel."""
        return f"{_SERVERS}/{self.id}#cancel"


class Ownership:
    """One server's part in it.

    Args:
      services: whose state it shares with others.

    Attributes:
      cancels: by collection, what cancels a job of a name; called in a thread of this object, for clients of other
        servers.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._state = services.state
        self.cancels: dict[str, Callable[[str], None]] = {}
        self._me = Owner.this()
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None
        self._lock = threading.Lock()

    def take(self, name: str) -> None:
        """Says that this server runs a job; that it lives it says before, or others would take it for dead."""
        with self._lock:
            if self._beating is None and self._is_shared:
                self._beat()
                beating = threading.Thread(target=self._keep_beating, name="vertex-owner", daemon=True)
                beating.start()
                self._beating = beating
        self._state.put(aspect_key(name, _ASPECT), self._me.to_bytes())

    def look_after(self, name: str, kind: type[Any]) -> None:
        """Fails a job whose server has ended without ending it, or before it had taken it.

        Args:
          name: of the job; it need not be there.
        """
        if not self._is_shared:
            return
        job = self._services.resources.find(name, kind)
        if job is None or State(job.state).is_final:
            return
        if self._state.get(aspect_key(name, _ASPECT)) is None:
            if self._services.clock.now() - job.create_time.ToNanoseconds() > _SILENT_SECONDS * 1e9:
                publish(self._services, name, kind, State.FAILED, endings.never_taken())
        elif (owner := self._owner(name)) is not None and self._is_gone(owner):
            publish(self._services, name, kind, State.FAILED, endings.owner_gone(str(owner)))

    def pass_on_cancel(self, name: str) -> bool:
        """Asks the server that runs a job to cancel it; whether that is another one than this."""
        owner = self._owner(name) if self._is_shared else None
        if owner is None:
            return False
        self._state.add(owner.cancel_key, name)
        return True

    @property
    def _is_shared(self) -> bool:
        return self._state.url != "memory:"

    def _owner(self, name: str) -> Owner | None:
        """Returns which other server runs a job; None if it is this one, or if none has taken it yet."""
        data = self._state.get(aspect_key(name, _ASPECT))
        if data is None or (found := Owner.from_bytes(data)).id == self._me.id:
            return None
        return found

    def _is_gone(self, owner: Owner) -> bool:
        """Returns whether a server has ended: its process, where it can be seen, or all signs of it."""
        if owner.host == self._me.host:
            return _started(owner.pid) != owner.started
        beat = self._state.get(owner.beat_key)
        return beat is None or time.time() - float(beat) > _SILENT_SECONDS

    def close(self) -> None:
        """Ends the thread, and removes all signs of this server. May be called again."""
        self._closed.set()
        if self._beating is not None:
            self._beating.join()
            self._beating = None
            with contextlib.suppress(Exception):  # it may be gone already
                self._state.delete(self._me.beat_key)
                self._state.delete(self._me.cancel_key)

    def _beat(self) -> None:
        self._state.put(self._me.beat_key, f"{time.time()}".encode())

    def _keep_beating(self) -> None:
        while not self._closed.wait(_BEAT_SECONDS):
            with contextlib.suppress(Exception):  # a state that cannot be reached now may be the next time
                self._beat()
                for name in self._state.members(self._me.cancel_key):
                    self._state.discard(self._me.cancel_key, name)
                    self.cancels[collection_of(name)](name)


def _started(pid: int) -> str:
    """Returns when a process began; empty if there is none, or a dead one that nobody has taken note of."""
    try:
        fields = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
