"""Admits sessions other than the zygote's parent, through a socket in a folder of the user's own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from t5x_harness.workers import framing
from t5x_harness.workers.import_fingerprint import changed_file, difference, facts, file_times

# A session has its first message ready when it connects.
_FIRST_MESSAGE_SECONDS = 5.0
_CREDENTIALS = struct.Struct("3i")


class Client:
    """A session that a zygote forks runs for.

    Args:
      control: its connection, which ends with the session.
      pid: the session's pid.
      path: the folders of its ``PYTHONPATH``; None for those that the zygote itself started with.

    Attributes:
      watch: a pidfd, readable when the session has ended; None if the kernel has none.
    """

    def __init__(self, control: socket.socket, pid: int, path: list[str] | None = None) -> None:
        self.control = control
        self.path = path
        self.watch: int | None = None
        with contextlib.suppress(OSError):  # an old kernel, or one that has gone: the connection alone tells
            self.watch = os.pidfd_open(pid)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that become readable when the session sends something or ends."""
        return (self.control.fileno(), *(() if self.watch is None else (self.watch,)))

    def close(self) -> None:
        """Closes both descriptors."""
        self.control.close()
        if self.watch is not None:
            os.close(self.watch)
            self.watch = None


@dataclasses.dataclass(frozen=True)
class _Visitor:
    """A process of this user that has not yet sent its first message."""

    connection: socket.socket
    pid: int
    deadline: float
    reader: framing.FrameReader = dataclasses.field(default_factory=framing.FrameReader)


class Listener:
    """Admits sessions whose imports would have been the zygote's.

    Args:
      listener: the listening socket.
      settings: the settings that the zygote was started with.
      environment: the environment that it imported in.
      since: when its imports began, in nanoseconds.

    Attributes:
      changed: an imported file that was found to have changed since :meth:`admit` was called; empty if none was.
    """

    def __init__(
        self, listener: socket.socket, settings: Mapping[str, Any], environment: Mapping[str, str], since: int
    ) -> None:
        self.listener = listener
        self._settings = settings
        self._facts = facts(environment)
        self._times = file_times(sys.modules, since)
        self.changed = ""
        self._visitors: dict[int, _Visitor] = {}  # by descriptor

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What is readable when there is something for :meth:`admit` to do."""
        return (self.listener.fileno(), *self._visitors)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody is there who was neither let in nor turned away."""
        return not self._visitors

    @property
    def patience(self) -> float | None:
        """The seconds until one of those who have not spoken is to be turned away; None if there is none."""
        deadlines = [visitor.deadline for visitor in self._visitors.values()]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def admit(self, ready: AbstractSet[int]) -> list[Client]:
        """Hears those that connected, without waiting for any of them, and returns those that are admitted.

        Args:
          ready: the readable ones of :attr:`descriptors`, among others.
        """
        self.changed = ""
        if self.listener.fileno() in ready:
            self._receive()
        admitted = [self._hear(descriptor) for descriptor in list(self._visitors) if descriptor in ready]
        for descriptor, visitor in list(self._visitors.items()):
            if visitor.deadline < time.monotonic():
                self._visitors.pop(descriptor).connection.close()
        return [client for client in admitted if client is not None]

    def close(self) -> None:
        """Closes the socket, and the connections of those that were not admitted yet."""
        self.listener.close()
        for visitor in self._visitors.values():
            visitor.connection.close()

    def _receive(self) -> None:
        connection, _ = self.listener.accept()
        pid, user = peer_of(connection)
        if user != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        deadline = time.monotonic() + _FIRST_MESSAGE_SECONDS
        self._visitors[connection.fileno()] = _Visitor(connection, pid, deadline)

    def _hear(self, descriptor: int) -> Client | None:
        visitor = self._visitors[descriptor]
        connection = visitor.connection
        try:
            data = connection.recv(1 << 16)
            messages = visitor.reader.feed(data)
            if data and not messages:
                return None  # the rest of it is still to come
            [wanted] = messages
            refusal = self._refusal(wanted)
            connection.setblocking(True)
            connection.sendall(framing.encode({"refused": refusal} if refusal else {"ready": True, "pid": os.getpid()}))
            if not refusal:
                del self._visitors[descriptor]
                return Client(connection, visitor.pid, wanted["facts"]["path"])
        except (OSError, framing.ProtocolError, KeyError, TypeError, ValueError):
            pass  # gone, or no session at all: nobody waits for an answer
        del self._visitors[descriptor]
        connection.close()
        return None

    def _refusal(self, wanted: Mapping[str, Any]) -> str:
        for name in ("preload", "python_path"):
            if list(wanted[name]) != list(self._settings[name]):
                return f"it has imported {self._settings[name]}, not {wanted[name]}"
        if changed := changed_file(self._times):
            self.changed = changed
            return f"{changed} has changed since it was imported: t5x-harness warm is importing again"
        return difference(self._facts, wanted["facts"], sys.modules)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Returns the pid and the user id of the process at the other end of a Unix socket."""
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user
