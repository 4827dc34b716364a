"""The emulated Google Clouds of a session's runs: a server for each concurrent run, and fresh buckets for each run."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.server.launch import missing_packages
from t5x_harness.google.session import EmulatedCloud, ServerError
from t5x_harness.variables import MODE_VARIABLE, ROOT_VARIABLE, SOURCE_VARIABLE


class GooglePool:
    """Servers for runs. The first one starts with the first run, or earlier with :meth:`warm`.

    No run sees another run's data. Consecutive runs use the same server, whose store is reset in between: to an empty
    one, or to a copy of the user's folder. Concurrent runs use separate servers.

    Args:
      source: the user's folder, with a folder for each bucket; it is copied and never written to. None for no buckets.
      mode: how ``/gcs`` is provided.
    """

    def __init__(self, source: str | os.PathLike[str] | None = None, mode: MountMode | str = MountMode.FOLDER) -> None:
        self._source = Path(source).absolute() if source is not None else None
        self._mode = MountMode(mode)
        self._lock = threading.Lock()
        self._servers: list[_PooledServer] = []
        self._taken: dict[str, _PooledServer] = {}  # by the root of its store

    @staticmethod
    def is_installed() -> bool:
        """Returns whether the extra ``google`` is installed."""
        return not missing_packages()

    def warm(self) -> None:
        """Starts a server in the background if none is running."""
        with self._lock:
            if not self._servers:
                self._servers.append(_PooledServer(self._source))

    def enter(self) -> Mapping[str, str]:
        """Prepares a store for a run. The run has to end with :meth:`leave`.

        Returns:
          The variables for the run's process.

        Raises:
          ServerError: the server did not start; the message says why.
          OSError: the user's folder cannot be read.
        """
        with self._lock:
            server = next((s for s in self._servers if not s.is_taken), None)
            is_new = server is None
            if server is None:
                server = _PooledServer(self._source)
                self._servers.append(server)
            server.is_taken = True
        try:
            root = str(server.made_ready().endpoints.root)
        except BaseException as error:
            self._drop(server)
            # Anything that an earlier run left, or did to the server, must not fail this run.
            if not is_new and isinstance(error, (ServerError, OSError, ValueError)):
                return self.enter()
            raise
        session = server.session
        self._taken[root] = server
        given = {SOURCE_VARIABLE: str(self._source)} if self._source is not None else {}
        return {**session.environment(), ROOT_VARIABLE: root, MODE_VARIABLE: self._mode.value, **given}

    def server_of(self, environment: Mapping[str, str]) -> EmulatedCloud:
        """Returns the server of a run with this environment."""
        return self._taken[environment[ROOT_VARIABLE]].session

    def said(self, environment: Mapping[str, str]) -> str:
        """Returns the server's output on standard error during a run, such as the name of a missing bucket."""
        server = self._taken.get(environment[ROOT_VARIABLE])
        return "" if server is None else server.session.said(server.said_before)[0]  # the run may already have ended

    def leave(self, environment: Mapping[str, str]) -> None:
        """Ends a run's use of its environment. May be called more than once."""
        server = self._taken.pop(environment[ROOT_VARIABLE], None)
        if server is None:
            return
        if server.session.how_it_ended():
            self._drop(server)
        server.is_taken = False

    def _drop(self, server: _PooledServer) -> None:
        """Ends a server that will not be used again, and removes its files."""
        with self._lock:
            self._servers.remove(server)
        server.close()

    def close(self, *, patient: bool = True) -> None:
        """Ends the servers. May be called more than once.

        Args:
          patient: whether to wait for a server that is starting; otherwise it ends with this process.
        """
        for server in self._servers:
            server.close(patient=patient)


class _PooledServer:
    """A server that starts immediately and serves one run at a time."""

    def __init__(self, source: Path | None) -> None:
        self.is_taken = self.is_used = False
        self.said_before = 0  # in bytes: the output of earlier runs
        self.session = EmulatedCloud()
        self._source = source
        self._started = Future[None]()
        threading.Thread(target=self._start, name="private-google", daemon=True).start()

    def made_ready(self) -> EmulatedCloud:
        """Resets the server's store and returns the server.

        Raises:
          ServerError: it did not start, or was killed.
          OSError: the user's folder cannot be read, or an earlier run's files cannot be removed.
          ValueError: the server refuses to remove an earlier run's objects.
        """
        self._started.result()
        buckets = self.session.endpoints.root / "buckets"
        if self.is_used:
            for entry in buckets.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:  # such as a file that was written directly to /gcs
                    entry.unlink()
            FakeGcs(self.session).remove_buckets()  # the buckets in the database, and objects that no folder can hold
        if self._source is not None:
            copy_buckets(self._source, buckets)
        self.is_used = True
        self.said_before = self.session.said()[1]
        return self.session

    def close(self, *, patient: bool = True) -> None:
        """Ends the server. May be called more than once.

        Args:
          patient: whether to wait if it is starting.
        """
        if patient or self._started.done():
            self._started.exception()  # waits for the start
            self.session.close()

    def _start(self) -> None:
        try:
            self.session.start()
        except BaseException as error:  # raised when the server is used
            self._started.set_exception(error)
        else:
            self._started.set_result(None)


def copy_buckets(source: str | os.PathLike[str], buckets: Path) -> None:
    """Copies a folder that has a folder for each bucket.

    The copy is writable even if the original is not, because files that the user has protected are ordinary objects
    in a run.

    Args:
      source: the user's folder, which is only read.
      buckets: the destination, which may exist.

    Raises:
      OSError: the user's folder cannot be read.
    """
    shutil.copytree(source, buckets, dirs_exist_ok=True, ignore=_not_objects)
    for folder, _, files in os.walk(buckets):
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)
        for name in files:
            path = os.path.join(folder, name)
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if not mode & stat.S_IWUSR:
                os.chmod(path, mode | stat.S_IWUSR)


def _not_objects(folder: str, names: list[str]) -> list[str]:
    """Returns the names that the store ignores as well: pipes, dangling links, and links to folders above."""
    above = {os.path.realpath(each) for each in (Path(folder), *Path(folder).parents)}

    def is_kept(path: str) -> bool:
        return os.path.isfile(path) or (os.path.isdir(path) and os.path.realpath(path) not in above)

    return [name for name in names if not is_kept(os.path.join(folder, name))]
