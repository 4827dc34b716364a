"""Puts the emulated Google Cloud in place of the real one while a command runs."""

from __future__ import annotations

import contextlib
import os
import socket
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.variables import ROOT_VARIABLE

if TYPE_CHECKING:
    from t5x_harness.google.vertex.settings import ExpectedJobs

_ANSWER_SECONDS = 5.0


def uses_emulated_google() -> bool:
    """Returns whether this process's Google clients use an emulated Google Cloud, as under ``t5x-harness serve``."""
    return bool(os.environ.get(ROOT_VARIABLE) and os.environ.get("STORAGE_EMULATOR_HOST"))


def emulation_has_ended() -> bool:
    """Returns whether this process's Google clients use an emulated Google Cloud that is no longer running."""
    if uses_emulated_google():
        address = urllib.parse.urlsplit(os.environ["STORAGE_EMULATOR_HOST"])
        try:
            socket.create_connection((address.hostname or "", address.port or 80), timeout=_ANSWER_SECONDS).close()
        except ConnectionRefusedError:
            return True
        except (OSError, ValueError):  # it may be busy, or its address may have another form
            pass
    return False


@contextlib.contextmanager
def emulated_google(
    root: str | None = None, source: str | None = None, *, warm: bool = False, expected: ExpectedJobs | None = None
) -> Iterator[None]:
    """Redirects this process's Google clients to an emulated Google Cloud.

    If they already use one, nothing changes. This has to begin before Google's libraries are first used, and only once
    in a process, because gRPC keeps the first certificates that it trusts.

    Args:
      root: the folder that keeps the buckets; by default a temporary one, which is removed at the end of the block.
      source: a folder with the initial content of each bucket, which is copied and never written to.
      warm: whether Vertex AI is loaded at once, instead of at the first request for it.
      expected: jobs that will be sent soon, so that their libraries are imported in advance.

    Raises:
      ServerError: the emulated Google Cloud cannot start.
    """
    if uses_emulated_google():
        yield
        return
    from t5x_harness.google.pool import copy_buckets
    from t5x_harness.google.vertex.settings import VertexOptions
    from t5x_harness.vertex.cloud import GoogleSession

    before = dict(os.environ)
    with GoogleSession(root, vertex=VertexOptions(warm=warm, expected=expected)) as session:
        if source is not None:
            copy_buckets(source, Path(session.endpoints.root) / "buckets")
        os.environ.update(session.environment())
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
