"""The private Google of a session's runs: fresh buckets for each, and a server for each of those that work at once."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from t5x_harness.google.fuse.mount import MODE_VARIABLE, Mode
from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.here import ROOT_VARIABLE, SOURCE_VARIABLE
from t5x_harness.google.serving.launch import missing_packages
from t5x_harness.google.session import GoogleSession

__all__ = ["GoogleOfRuns"]


class GoogleOfRuns:
    """Starts with the first run that enters, or earlier by :meth:`warm`; ends with :meth:`close`.

    What a run wrote is seen by no other one. Runs one after the other have the same server, whose store is put back to
    how it began, empty or as the user's folder has it; a run that enters while others are in it has another server.

    Args:
      source: the user's folder, with a folder for each bucket; it is copied and never written to. None for no buckets.
      mode: what ``/gcs`` is like.
    """

    def __init__(self, source: str | os.PathLike[str] | None = None, mode: Mode | str = Mode.FOLDER) -> None:
        self._source = Path(source).absolute() if source is not None else None
        self._mode = Mode(mode)
        self._lock = threading.Lock()
        self._servers: list[_Server] = []
        self._taken: dict[str, _Server] = {}  # by the root of its store

    @staticmethod
    def is_installed() -> bool:
        """Whether the extra ``google`` is here."""
        return not missing_packages()

    def warm(self) -> None:
        """Starts a server in the background, if there is none."""
        with self._lock:
            if not self._servers:
                self._servers.append(_Server(self._source))

    def enter(self) -> Mapping[str, str]:
        """Makes a store ready for a run; to be followed by :meth:`leave`.

        Returns:
          The variables for the run's process.

        Raises:
          ServerError: the server did not start; the message says why.
          OSError: the user's folder cannot be read.
        """
        with self._lock:
            server = next((s for s in self._servers if not s.is_taken), None)
            if server is None:
                server = _Server(self._source)
                self._servers.append(server)
            server.is_taken = True
        try:
            session = server.made_ready()
        except BaseException:
            server.is_taken = False
            raise
        root = str(session.endpoints.root)
        self._taken[root] = server
        given = {SOURCE_VARIABLE: str(self._source)} if self._source is not None else {}
        return {**session.environment(), ROOT_VARIABLE: root, MODE_VARIABLE: self._mode.value, **given}

    def leave(self, environment: Mapping[str, str]) -> None:
        """The run that was given this environment has ended. May be called again for it."""
        server = self._taken.pop(environment[ROOT_VARIABLE], None)
        if server is not None:
            server.is_taken = False

    def close(self) -> None:
        """Ends the servers. May be called again."""
        for server in self._servers:
            server.close()


class _Server:
    """One server, which starts at once; one run at a time is in it."""

    def __init__(self, source: Path | None) -> None:
        self.is_taken = False
        self._source = source
        self._session = GoogleSession()
        self._is_used = False
        self._started = Future[None]()
        threading.Thread(target=self._start, name="private-google", daemon=True).start()

    def made_ready(self) -> GoogleSession:
        """The server, its store as it began.

        Raises:
          ServerError: it did not start.
          OSError: the user's folder cannot be read.
        """
        self._started.result()
        buckets = self._session.endpoints.root / "buckets"
        if self._is_used:
            for folder in buckets.iterdir():
                shutil.rmtree(folder)
            FakeGcs(self._session).remove_buckets()  # those that the database knows, and objects that no tree can hold
        if self._source is not None:
            shutil.copytree(self._source, buckets, dirs_exist_ok=True)
        self._is_used = True
        return self._session

    def close(self) -> None:
        """Ends it. May be called again."""
        self._started.exception()  # one that is about to start ends as well
        self._session.close()

    def _start(self) -> None:
        try:
            self._session.start()
        except BaseException as error:  # raised where the server is asked for
            self._started.set_exception(error)
        else:
            self._started.set_result(None)
