"""The private Google in Vertex AI's place, for as long as a command lasts."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.google.vertex.settings import ExpectedJobs, VertexOptions
from t5x_harness.variables import ROOT_VARIABLE

_ANSWER_SECONDS = 5.0


def is_led_to_private_google(environment: Mapping[str, str]) -> bool:
    """Whether a process's Google clients go to a private Google already, as in a shell of ``t5x-harness serve``."""
    return bool(environment.get(ROOT_VARIABLE) and environment.get("STORAGE_EMULATOR_HOST"))


def emulation_has_ended(environment: Mapping[str, str]) -> bool:
    """Whether nobody answers where a process's Google clients are led to, though they are led to this machine."""
    if not is_led_to_private_google(environment):
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
def private_google(
    root: str | None = None, source: str | None = None, *, warm: bool = False, expected: ExpectedJobs | None = None
) -> Iterator[None]:
    """Leads this process's Google clients to a private Google.

    One that they are led to already is taken as it is. This has to begin before Google's libraries are first used, and
    only once in a process: gRPC keeps the certificates that it trusts first.

    Args:
      root: folder that keeps the buckets; by default a temporary one, which goes with the block.
      source: folder with a folder for each bucket, which the buckets begin with; it is copied and never written to.
      warm: whether Vertex AI is made ready at once, and not with the first request for it.
      expected: jobs that are about to be sent, so that what they import is imported before.

    Raises:
      ServerError: the private Google cannot start.
    """
    if is_led_to_private_google(os.environ):
        yield
        return
    from t5x_harness.google.session import GoogleSession

    before = dict(os.environ)
    with GoogleSession(root, vertex=VertexOptions(warm=warm, expected=expected)) as session:
        if source is not None:
            shutil.copytree(source, Path(session.endpoints.root) / "buckets", dirs_exist_ok=True)
        os.environ.update(session.environment())
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
