"""The emulated Vertex AI of a session: a private Google that this process, and so Google's SDK in it, is led to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from t5x_harness.google.here import store
from t5x_harness.google.session import GoogleSession, ServerError
from t5x_harness.google.vertex.settings import VertexOptions

__all__ = ["EmulatedVertex", "EmulatorError"]


class EmulatorError(Exception):
    """It cannot be had; the message says why and how to mend it."""


class EmulatedVertex:
    """Starts at once; until :meth:`close` the process's variables lead there.

    A process that is led to a private Google already, in a shell of ``t5x-harness serve``, uses that one.

    Args:
      source: a folder with a folder for each bucket, which jobs find there; it is copied and never written to.

    Raises:
      EmulatorError: a package is missing, or the server does not start.
    """

    def __init__(self, source: str | os.PathLike[str] | None = None) -> None:
        self._before: Mapping[str, str | None] = {}
        self._session: GoogleSession | None = None
        _require_sdk()
        if store() is not None:
            return
        self._session = GoogleSession(vertex=VertexOptions(warm=True))
        try:
            self._session.start()
        except ServerError as error:
            raise EmulatorError(str(error)) from None
        if source is not None:
            shutil.copytree(source, Path(self._session.endpoints.root) / "buckets", dirs_exist_ok=True)
        environment = self._session.environment()
        self._before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)

    def close(self) -> None:
        """Ends the server, and every job with it; the process's variables are as they were. May be called again."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        if self._session is not None:
            self._session.close()


def _require_sdk() -> None:
    import importlib.util

    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.aiplatform") is None:
        raise EmulatorError("Google's SDK is not installed: pip install 't5x-harness[google,vertex]'")
