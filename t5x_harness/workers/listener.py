"""Admits sessions other than the zygote's parent, through a socket in a folder that only the user can access.

A worker that is kept (``t5x-harness warm``) forks runs for sessions that it knows nothing about. It may do so only if
its imports cannot be distinguished from theirs.
"""

import contextlib
import dataclasses
import importlib.machinery
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any

from t5x_harness.variables import RUNTIME_VARIABLE
from t5x_harness.version import ORIGIN
from t5x_harness.workers import framing

# A session sends its first message as soon as it connects.
_FIRST_MESSAGE_SECONDS = 5.0
_CREDENTIALS = struct.Struct("3i")

# Libraries of the stack read these while they are imported. JAX's are set again in each run.
_READ_BY_IMPORTS = (
    "ABSL_", "CUDA_", "HF_", "KERAS_", "LC_", "LD_", "LIBTPU_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_",
    "PROTOCOL_BUFFERS_", "PYTHON", "TFDS_", "TF_", "TPU_", "XLA_",
)  # fmt: skip
_READ_BY_NAME = frozenset({"HOME", "LANG", "TZ", RUNTIME_VARIABLE})

# JAX, TensorFlow and libtpu set these while they are imported, so a session that has imported them differs only in
# these. Each run looks up libtpu's library when it loads it.
_SET_BY_IMPORTS = frozenset(
    {"TF_CPP_MIN_LOG_LEVEL", "TPU_LIBRARY_PATH", "TPU_ML_PLATFORM", "TPU_ML_PLATFORM_VERSION", "TPU_SKIP_MDS_QUERY"}
)

# The variables that each run follows by itself.
_FOLLOWED = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"})

# The kernel's namespaces of mounts, networks, processes and users.
_NAMESPACES = ("mnt", "net", "pid", "user")

_UNKNOWN = -1  # not the time of any file

_SUFFIXES = tuple(importlib.machinery.all_suffixes())


class Client:
    """A session that a zygote forks runs for.

    Args:
      control: its connection, which ends with the session.
      pid: the session's pid.
      path: the folders of its ``PYTHONPATH``; None for the folders that the zygote itself started with.

    Attributes:
      watch: a pidfd, readable when the session has ended; None if the kernel has none.
    """

    def __init__(self, control: socket.socket, pid: int, path: list[str] | None = None) -> None:
        self.control = control
        self.path = path
        self.watch: int | None = None
        with contextlib.suppress(OSError):  # the kernel is old, or the session is gone: the connection shows its end
            self.watch = os.pidfd_open(pid)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that become readable when the session sends something or ends."""
        return (self.control.fileno(), *(() if self.watch is None else (self.watch,)))

    def close(self) -> None:
        """Closes the connection and the pidfd."""
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
    """Admits sessions whose imports would have equaled the zygote's.

    Args:
      listener: the listening socket.
      settings: the settings that the zygote was started with.
      environment: the environment that the zygote imported in.
      since: the time when its imports began, in nanoseconds.

    Attributes:
      changed: an imported file that was found to have changed since :meth:`admit` was called; empty if none was.
      can_stop: whether another process may ask it to end, which it may once no session owns it.
      is_stopped: whether one has.
    """

    def __init__(
        self, listener: socket.socket, settings: Mapping[str, Any], environment: Mapping[str, str], since: int
    ) -> None:
        self.listener = listener
        self._settings = settings
        self._facts = facts(environment)
        self._times = file_times(sys.modules, since)
        self.changed = ""
        self.can_stop = self.is_stopped = False
        self._visitors: dict[int, _Visitor] = {}  # by descriptor

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors, one of which is readable if :meth:`admit` has something to do."""
        return (self.listener.fileno(), *self._visitors)

    @property
    def is_quiet(self) -> bool:
        """Whether every session that connected was admitted or turned away."""
        return not self._visitors

    @property
    def patience(self) -> float | None:
        """The seconds until the next silent session is to be turned away; None if no session is silent."""
        deadlines = [visitor.deadline for visitor in self._visitors.values()]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def admit(self, ready: AbstractSet[int]) -> list[Client]:
        """Reads from the sessions that connected, without waiting for any of them, and returns the admitted ones.

        Args:
          ready: the readable descriptors, including those of :attr:`descriptors`.
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
        """Closes the socket, and the connections of sessions that have not been admitted yet."""
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
            if "stop" in wanted:
                self.is_stopped |= self.can_stop
                connection.sendall(framing.encode({"stopping": os.getpid() if self.can_stop else None}))
                raise ConnectionAbortedError
            refusal = self._refusal(wanted)
            connection.setblocking(True)
            connection.sendall(framing.encode({"refused": refusal} if refusal else {"ready": True, "pid": os.getpid()}))
            if not refusal:
                del self._visitors[descriptor]
                return Client(connection, visitor.pid, wanted["facts"]["path"])
        except (OSError, framing.ProtocolError, KeyError, TypeError, ValueError):
            pass  # gone, or not a session: nobody waits for more
        del self._visitors[descriptor]
        connection.close()
        return None

    def changed_file(self) -> str:
        """Returns an imported file that has changed; empty if none has."""
        return next((file for file, written in self._times.items() if _time(file) != written), "")

    def _refusal(self, wanted: Mapping[str, Any]) -> str:
        if self.is_stopped:
            return "it is ending"
        for name in ("preload", "python_path"):
            if list(wanted[name]) != list(self._settings[name]):
                return f"it has imported {self._settings[name]}, not {wanted[name]}"
        self.changed = self.changed_file()
        if self.changed:
            return f"{self.changed} has changed since it was imported: t5x-harness warm is importing again"
        return difference(self._facts, wanted["facts"], sys.modules)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Returns the pid and the user id of the process at the other end of a Unix socket."""
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


def facts(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns everything that a process's imports depend on, as JSON.

    Args:
      environment: the environment that the process imports in.
    """
    read = {name for name in environment if name in _READ_BY_NAME or name.startswith(_READ_BY_IMPORTS)}
    return {
        # The interpreter has several names in an environment, and scripts there begin with different ones.
        "interpreter": [sys.prefix, os.path.realpath(sys.executable), sys.version],
        "harness": os.path.realpath(ORIGIN),
        "namespaces": [os.readlink(f"/proc/self/ns/{kind}") for kind in _NAMESPACES],
        "path": [os.path.abspath(entry) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry],
        "jax": sorted(name for name in environment if name.startswith("JAX_")),
        "variables": {name: environment[name] for name in sorted(read - _FOLLOWED - _SET_BY_IMPORTS)},
    }


def difference(kept: Mapping[str, Any], wanted: Mapping[str, Any], modules: Iterable[str]) -> str:
    """Returns why another process cannot use the imports of a process; empty if it can.

    Args:
      kept: :func:`facts` of the process that has imported.
      wanted: :func:`facts` of the other process.
      modules: the names of the imported modules.
    """
    unlike = {
        "interpreter": "runs another Python",
        "harness": "runs another copy of t5x-harness",
        "namespaces": "is in another namespace, and may see other files or another network",
    }
    for name, what in unlike.items():
        if kept[name] != wanted[name]:
            return f"it {what}: {_first_difference(kept[name], wanted[name])}"
    ours, theirs = kept["variables"], wanted["variables"]
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return f"{name} is {_shown(theirs.get(name))} here and was {_shown(ours.get(name))} when it imported"
    for name in kept["jax"]:
        if name not in wanted["jax"]:
            return f"{name} is not set here and was set when it imported"
    for entry in kept["path"]:
        if entry not in wanted["path"]:
            return f"PYTHONPATH had {entry} when it imported, and has not here"
    added = [entry for entry in wanted["path"] if entry not in kept["path"]]
    return _shadowing(added, {name.partition(".")[0] for name in modules})


def file_times(modules: Mapping[str, ModuleType], since: int) -> dict[str, int]:
    """Returns the times when the files of modules were last modified.

    Args:
      modules: the modules by name, as in ``sys.modules``.
      since: the time when their import began, in nanoseconds. A file that was modified later may have been imported
        before, and counts as changed.

    Returns:
      The times in nanoseconds, by file.
    """
    files = {getattr(module, "__file__", None) for module in list(modules.values())}
    until = time.time_ns()  # a file from the future was not written since then
    times = {file: written for file in files if file and (written := _time(file))}
    return {file: _UNKNOWN if since < written <= until else written for file, written in times.items()}


def _time(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _first_difference(ours: Any, theirs: Any) -> str:
    if isinstance(ours, str):
        return f"{ours}, not {theirs}"
    return next(f"{a}, not {b}" for a, b in zip(ours, theirs, strict=True) if a != b)


def _shown(text: str | None) -> str:
    return "unset" if text is None else repr(text)


def _shadowing(folders: Sequence[str], imported: set[str]) -> str:
    """Returns why imports would have found another module if these folders had come first."""
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue  # no folder: nothing is imported from it, or it is an archive
        for name in names:
            path = os.path.join(folder, name)
            module = next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
            is_package = os.path.isfile(os.path.join(path, "__init__.py"))
            if module in imported and (module != name or is_package):
                return f"{path} would be imported here in place of the {module} that it has"
    return ""
