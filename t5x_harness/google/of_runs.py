"""The private Google of a session's runs: one server for all of them, with fresh buckets for each."""

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

    What a run wrote is seen by no later one: where no other run is in it, the store is put back to how it began, empty
    or as the user's folder has it.

    Args:
      source: the user's folder, with a folder for each bucket; it is copied and never written to. None for no buckets.
      mode: what ``/gcs`` is like.
    """

    def __init__(self, source: str | os.PathLike[str] | None = None, mode: Mode | str = Mode.FOLDER) -> None:
        self._source = Path(source).absolute() if source is not None else None
        self._mode = Mode(mode)
        self._session = GoogleSession()
        self._lock = threading.Lock()
        self._inside = 0
        self._start: Future[None] | None = None
        self._used = False

    @staticmethod
    def is_installed() -> bool:
        """Whether the extra ``google`` is here."""
        return not missing_packages()

    def warm(self) -> None:
        """Starts the server in the background."""
        with self._lock:
            if self._start is None:
                self._start = started = Future[None]()
                threading.Thread(target=self._begin, args=(started,), name="private-google", daemon=True).start()

    def enter(self) -> Mapping[str, str]:
        """Makes the store ready for a run; to be followed by :meth:`leave`.

        Returns:
          The variables for the run's process.

        Raises:
          ServerError: the server did not start; the message says why.
          OSError: the user's folder cannot be read.
        """
        self.warm()
        assert self._start
        self._start.result()
        with self._lock:
            if self._inside == 0:
                self._put_back()
            self._inside += 1
        given = {SOURCE_VARIABLE: str(self._source)} if self._source is not None else {}
        root = str(self._session.endpoints.root)
        return {**self._session.environment(), ROOT_VARIABLE: root, MODE_VARIABLE: self._mode.value, **given}

    def leave(self) -> None:
        """A run that entered has ended."""
        with self._lock:
            self._inside -= 1

    def close(self) -> None:
        """Ends the server. May be called again."""
        if self._start is not None:
            self._start.exception()  # one that is about to start ends as well
        self._session.close()

    def _begin(self, started: Future[None]) -> None:
        try:
            self._session.start()
        except BaseException as error:  # raised where the future is asked
            started.set_exception(error)
        else:
            started.set_result(None)

    def _put_back(self) -> None:
        buckets = self._session.endpoints.root / "buckets"
        if self._used:
            for folder in buckets.iterdir():
                shutil.rmtree(folder)
            FakeGcs(self._session).remove_buckets()  # those that the database knows, and objects that no tree can hold
        if self._source is not None:
            shutil.copytree(self._source, buckets, dirs_exist_ok=True)
        self._used = True
