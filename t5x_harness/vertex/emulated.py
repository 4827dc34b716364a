"""The emulated Google Cloud in Vertex AI's place, for as long as a command lasts."""

from __future__ import annotations

import contextlib
import os
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.variables import ROOT_VARIABLE

if TYPE_CHECKING:
    from t5x_harness.google.vertex.settings import ExpectedJobs

_ANSWER_SECONDS = 5.0


def uses_emulated_google(environment: Mapping[str, str]) -> bool:
    """Tells whether a process's Google clients use an emulated Google Cloud, as in a shell of ``t5x-harness serve``."""
    return bool(environment.get(ROOT_VARIABLE) and environment.get("STORAGE_EMULATOR_HOST"))


def emulation_has_ended(environment: Mapping[str, str]) -> bool:
    """Returns whether a process's Google clients are redirected to this machine, and nothing answers there."""
    if not uses_emulated_google(environment):
        return False
    address = urllib.parse.urlsplit(environment["STORAGE_EMULATOR_HOST"])
    try:
        socket.create_connection((address.hostname or "", address.port or 80), timeout=_ANSWER_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):  # it may be busy, and where it is may be written in another way
        return False
    return False


@contextlib.contextmanager
def emulated_google(
    root: str | None = None, source: str | None = None, *, warm: bool = False, expected: ExpectedJobs | None = None
) -> Iterator[None]:
    """Redirects this process's Google clients to an emulated Google Cloud.

    One that they use already is taken as it is. This has to begin before Google's libraries are first used, and only
    once in a process: gRPC keeps the certificates that it trusts first.

    Args:
      root: folder that keeps the buckets; by default a temporary one, which goes with the block.
      source: folder with a folder for each bucket, which the buckets begin with; it is copied and never written to.
      warm: whether Vertex AI is made ready at once, and not with the first request for it.
      expected: jobs that are about to be sent, so that what they import is imported before.

    Raises:
      ServerError: the emulated Google Cloud cannot start.
    """
    if uses_emulated_google(os.environ):
        yield
        return
    from t5x_harness.google.buckets_copy import copy_buckets
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
