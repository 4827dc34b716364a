"""The zygote's way in for sessions other than its parent: a socket in a folder of the user's own."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from t5x_harness.workers import framing
from t5x_harness.workers.likeness import changed_file, difference, facts, file_times

__all__ = ["Client", "Door", "peer_of"]

# Who connects has its first message ready; nobody else waits for one that has not.
_FIRST_MESSAGE_SECONDS = 5.0
_CREDENTIALS = struct.Struct("3i")


class Client:
    """A session that a zygote forks runs for.

    Args:
      control: its connection; the end of it is the end of the session.
      pid: of the session.
      path: the folders of its ``PYTHONPATH``; None for those that the zygote itself began with.

    Attributes:
      watch: a pidfd, readable when the session has ended; None where the kernel has none.
    """

    def __init__(self, control: socket.socket, pid: int, path: list[str] | None = None) -> None:
        self.control = control
        self.path = path
        self.watch: int | None = None
        with contextlib.suppress(OSError):  # an old kernel, or one that has gone: the connection alone tells
            self.watch = os.pidfd_open(pid)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What is readable when something has come from the session."""
        return (self.control.fileno(), *(() if self.watch is None else (self.watch,)))

    def close(self) -> None:
        """Gives both back."""
        self.control.close()
        if self.watch is not None:
            os.close(self.watch)
            self.watch = None


class Door:
    """Lets in whose imports would have brought what the zygote has.

    Args:
      listener: the socket, which listens.
      settings: that the zygote was started with.
      environment: that it imported under.
    """

    def __init__(self, listener: socket.socket, settings: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.listener = listener
        self._settings = settings
        self._facts = facts(environment)
        self._times = file_times(sys.modules)

    def admit(self) -> Client | None:
        """Answers the next one at the door; None if it was not let in."""
        connection, _ = self.listener.accept()
        try:
            pid, user = peer_of(connection)
            if user == os.getuid():
                connection.settimeout(_FIRST_MESSAGE_SECONDS)
                wanted = framing.Channel(connection).receive()
                refusal = self._refusal(wanted)
                connection.sendall(
                    framing.encode({"refused": refusal} if refusal else {"ready": True, "pid": os.getpid()})
                )
                if not refusal:
                    connection.settimeout(None)
                    return Client(connection, pid, wanted["facts"]["path"])
        except (OSError, EOFError, framing.ProtocolError, KeyError, TypeError):
            pass  # gone, or no session at all: nobody waits for an answer
        connection.close()
        return None

    def _refusal(self, wanted: Mapping[str, Any]) -> str:
        for name in ("preload", "python_path"):
            if list(wanted[name]) != list(self._settings[name]):
                return f"it has imported {self._settings[name]}, not {wanted[name]}"
        if changed := changed_file(self._times):
            return f"{changed} has changed since it was imported"
        return difference(self._facts, wanted["facts"], sys.modules)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The pid and the user id of the process at the other end of a Unix socket."""
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user
