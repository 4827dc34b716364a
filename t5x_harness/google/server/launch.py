"""Starts a server in a separate process, waits until it is ready, and ends it."""

import importlib.util
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from t5x_harness.google.product import PACKAGE, PRODUCT, SERVER_NAME
from t5x_harness.google.server.settings import Endpoints, ServerError, ServerSettings
from t5x_harness.system.diagnosis import read_tail
from t5x_harness.system.processes import kill_quietly, name_process

_NEEDED = {
    "httptools": "httptools",
    "cryptography": "cryptography",
    "trustme": "trustme",
    "grpc": "grpcio",
    "google.cloud.storage": "google-cloud-storage",
    "google_crc32c": "google-crc32c",
}
_START_SECONDS = 60.0
_END_SECONDS = 10.0

# The server has to run the same code as its parent, whose import path may have another source tree.
_BOOT = """\
import importlib.util, os, sys
found = importlib.util.find_spec({package!r})
if not (found and found.origin and os.path.samefile(found.origin, {origin!r})):
    sys.path.insert(0, os.path.dirname(os.path.dirname({origin!r})))
from {package}.google.server.launch import main
sys.exit(main(sys.argv[1:]))
"""


class Launched:
    """A server that was started."""

    def __init__(self, endpoints: Endpoints, life: int) -> None:
        self.endpoints = endpoints
        self._life = life

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when the server ends."""
        return self._life

    def how_it_ended(self) -> str:
        """Describes how the server ended; returns an empty string while it runs."""
        if not _readable(self._life, 0):
            return ""
        # A server that is not killed removes its folder before it ends.
        how = "was killed (out of memory?)" if self.endpoints.folder.exists() else "was ended"
        return f"the emulated Google Cloud, process {self.endpoints.pid}, {how}"

    def detach(self) -> None:
        """Stops watching the server, which ends with its owner."""
        os.close(self._life)

    def end(self) -> None:
        """Ends the server and waits until it has cleaned up; cleans up for a server that was killed."""
        deadline = time.monotonic() + _END_SECONDS
        if not _readable(self._life, 0):  # it is alive, so its pid was not reused
            kill_quietly(self.endpoints.pid, signal.SIGTERM)
        if not _readable(self._life, deadline - time.monotonic()):
            kill_quietly(self.endpoints.pid, signal.SIGKILL)
            _readable(self._life, _END_SECONDS)
        os.close(self._life)
        shutil.rmtree(self.endpoints.folder, ignore_errors=True)


def launch(settings: ServerSettings, output: IO[bytes] | None = None) -> Launched:
    """Starts a server and waits until it is ready; by default its output is this process's standard error.

    Raises ServerError if it did not become ready; the message has its output.
    """
    require_extra()
    reading, writing = os.pipe()
    boot = _BOOT.format(package=PACKAGE, origin=str(Path(__file__).resolve().parents[2] / "__init__.py"))
    try:
        try:
            # This process ends at once and leaves the server as an orphan.
            subprocess.run(
                [sys.executable, "-P", "-c", boot, settings.to_json(), str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writing,),
                start_new_session=True,  # so that Ctrl-C reaches only the owner
                check=False,
            )
        finally:
            os.close(writing)
        return Launched(Endpoints.from_json(_ready_line(reading, output)), reading)
    except BaseException:
        os.close(reading)  # a server ends if it cannot report that it is ready
        raise


def main(arguments: Sequence[str]) -> int:
    """Runs a server in this process, which :func:`launch` has started, until it ends.

    Args:
      arguments: the settings as JSON, and a descriptor to which one line of JSON is written when the server is ready.
        The descriptor stays open until the server has cleaned up.
    """
    settings, descriptor = ServerSettings.from_json(arguments[0]), int(arguments[1])
    # Orphaned, so that an owner that waits for all of its children does not wait for the server.
    if os.fork():
        os._exit(0)
    name_process(SERVER_NAME)

    def ready(endpoints: Endpoints) -> None:
        os.write(descriptor, f"{endpoints.to_json()}\n".encode())

    try:
        import asyncio

        from t5x_harness.google.server.process import serve

        asyncio.run(serve(settings, ready))
    except (ServerError, BrokenPipeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def missing_packages() -> list[str]:
    """Returns the packages of the extra ``google`` that are not installed."""
    return [package for module, package in _NEEDED.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def require_extra() -> None:
    """Raises ServerError, which names them, if packages of the extra ``google`` are not installed."""
    if missing := missing_packages():
        raise ServerError(
            f"the emulated Google Cloud needs {', '.join(missing)}, not installed here: "
            f"python -m pip install '{PRODUCT}[google]'"
        )


def _ready_line(descriptor: int, output: IO[bytes] | None) -> bytes:
    deadline = time.monotonic() + _START_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        if not _readable(descriptor, deadline - time.monotonic()):
            raise ServerError(f"the emulated Google Cloud was not ready after {_START_SECONDS:g} s{_said(output)}")
        data = os.read(descriptor, 1 << 16)
        if not data:
            raise ServerError(f"the emulated Google Cloud could not start{_said(output)}")
        line += data
    return line


def _readable(descriptor: int, seconds: float) -> bool:
    """Waits until a descriptor has data or has reached its end; returns whether that was in time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def _said(output: IO[bytes] | None) -> str:
    if output is None:
        return ""
    tail = read_tail(Path(f"/proc/self/fd/{output.fileno()}"))
    return f": {tail}" if tail else ""
