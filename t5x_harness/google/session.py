"""An emulated Google Cloud in a separate process, for the duration of a ``with`` block."""

import dataclasses
import json
import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from t5x_harness.google.environment import google_environment
from t5x_harness.google.identity import PRIVATE
from t5x_harness.google.server.launch import Launched, launch
from t5x_harness.google.server.settings import APP, Endpoints, ServerError, ServerGone, ServerSettings
from t5x_harness.google.vertex.settings import VertexOptions

__all__ = ["EmulatedCloud", "ServerError", "ask_server", "pages_of"]


class EmulatedCloud:
    """A server that ``with`` starts. It ends with the block, or with this process, even if that is killed.

    Any number of servers may run at once, each with its own ports, buckets and certificates.

    Args:
      root: the folder that stores the buckets; by default a temporary one, which is removed with the session.
      app: the factory of the application for Cloud Storage, as ``module:factory``. It is called with the root, and the
        application is closed at the end.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        app: str = APP,
        vertex: VertexOptions = VertexOptions(),  # noqa: B008 - a frozen value
    ) -> None:
        self._settings = ServerSettings(Path(root).absolute() if root is not None else None, app=app, vertex=vertex)
        self._owner = os.getpid()
        self._launched: Launched | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Starts the server if necessary, and waits until it is ready; raises ServerError if it does not start."""
        if self._launched is None:
            self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
            self._launched = launch(dataclasses.replace(self._settings, owner=self._owner), self._output)

    def close(self) -> None:
        """Ends the server and waits until it has cleaned up. May be called more than once."""
        launched, self._launched = self._launched, None
        if launched is not None and os.getpid() == self._owner:  # a fork of the owner must not end the server
            launched.end()
            self._output.close()

    @property
    def endpoints(self) -> Endpoints:
        """The server's ports and folders.

        Raises:
          ServerError: it was not started, or has been closed.
          ServerGone: it was killed.
        """
        if ended := self.how_it_ended():
            raise ServerGone(ended)
        return self._running().endpoints

    def fileno(self) -> int:
        """Returns a descriptor that can be read once the server has ended; raises ServerError if none was started."""
        return self._running().fileno()

    def how_it_ended(self) -> str:
        """Returns, in words, how the server ended without being closed; empty while it is running."""
        return "" if self._launched is None else self._launched.how_it_ended()

    def _running(self) -> Launched:
        if self._launched is None:
            raise ServerError("this emulated Google Cloud is not running: use it in a with block, or call start()")
        return self._launched

    def said(self, since: int = 0) -> tuple[str, int]:
        """Returns the server's output on standard error, such as refused requests, and the position after it.

        Args:
          since: the position at which to start, as returned by an earlier call.
        """
        if self._launched is None:
            return "", since
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size - since, since).decode(errors="replace"), size

    def environment(self, base: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Returns the variables to set for clients; see :func:`google_environment`."""
        return google_environment(self.endpoints, base)

    def refused(self) -> Mapping[str, int]:
        """Returns the hosts that the proxy refused because they are not Google's, with the number of requests each."""
        counts: dict[str, int] = ask_server(self.endpoints, "GET", f"{PRIVATE}/refused")
        return counts


def ask_server(
    endpoints: Endpoints, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Any:
    """Asks a server directly, without the user's proxies, and returns the answer's JSON.

    Raises:
      HTTPError: the server answers with an error.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    own = {"Content-Type": "application/json", **(headers or {})}
    with direct.open(urllib.request.Request(endpoints.url + path, body, own, method=method), timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def pages_of(ask: Callable[[str], Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the pages of a list.

    Args:
      ask: gets the page for a token; an empty token means the first page.
    """
    token = ""
    while True:
        yield (page := ask(token))
        if not (token := page.get("nextPageToken", "")):
            return
