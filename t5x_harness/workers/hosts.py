"""The process that a zygote lives in: either this session's own, or one that is kept for many sessions."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from t5x_harness.system.diagnosis import describe_returncode, read_tail
from t5x_harness.version import ORIGIN
from t5x_harness.workers.listener import peer_of

# A little longer than the zygote waits for its guards.
END_SECONDS = 12.0

# The zygote must run the same code as its parent, which may use a source tree that is only on the parent's path.
BOOT = """\
import importlib.util, os, sys
found = importlib.util.find_spec("t5x_harness")
if not (found and found.origin and os.path.samefile(found.origin, {origin!r})):
    sys.path.insert(0, os.path.dirname(os.path.dirname({origin!r})))
from t5x_harness.workers.zygote_process import main
main({control}, {lifeline}, {parent}, {listening})
"""


class OwnHost:
    """A process for this session alone, which ends with it; starts at once.

    Args:
      environment: the complete environment of the process.
      socket_path: the path of a socket on which it also serves other sessions; None for no socket.

    Attributes:
      control: the connection to the zygote.
      pid: the zygote's pid.
    """

    def __init__(self, environment: Mapping[str, str], socket_path: Path | None) -> None:
        self.control, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._socket_path = socket_path
        listener = None if socket_path is None else _listen(socket_path)
        descriptors = [theirs.fileno(), lifeline, *([] if listener is None else [listener.fileno()])]
        boot = BOOT.format(
            origin=os.path.realpath(ORIGIN),
            control=theirs.fileno(),
            lifeline=lifeline,
            parent=os.getpid(),
            listening=None if listener is None else listener.fileno(),
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", boot],  # -P: nothing is imported from the current folder
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment,
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends this one
            )
        finally:
            theirs.close()
            os.close(lifeline)
            if listener is not None:
                listener.close()
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def how_it_ended(self) -> str:
        """Waits for the process to end, and describes how it ended."""
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0
        return describe_returncode(code)

    def log_tail(self) -> str:
        """Returns the end of its output."""
        return read_tail(Path(f"/proc/self/fd/{self._output.fileno()}"))

    def leave(self) -> None:
        """Lets go of the process, which has agreed to outlive this one."""
        self.control.close()
        os.close(self._lifeline)
        self._output.close()
        self._process.returncode = 0  # or Popen would warn that nobody has waited for it

    def stop(self, *, patient: bool) -> None:
        """Ends the process.

        Args:
          patient: whether to let it end by itself; during its imports, it may be stuck and have started processes.
        """
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        os.close(self._lifeline)
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)
        try:
            self._process.wait(END_SECONDS if patient else 0)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._output.close()

    def kill(self) -> None:
        """Kills the process and its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


class WarmHost:
    """A process that ``t5x-harness warm`` keeps.

    Args:
      socket_path: the path of its socket.

    Attributes:
      control: the connection to the zygote.
      pid: the zygote's pid.

    Raises:
      OSError: no process listens there.
    """

    def __init__(self, socket_path: Path) -> None:
        self.control = socket.socket(socket.AF_UNIX)
        try:
            with _short(socket_path) as path:
                self.control.connect(path)
            self.pid, user = peer_of(self.control)  # the keeper's pid, until the zygote itself has answered
            if user != os.getuid():
                raise PermissionError(f"the process at {socket_path} is another user's")
        except BaseException:
            self.control.close()
            raise

    @property
    def has_ended(self) -> bool:
        """Whether the zygote has closed the connection; between two runs it sends nothing else."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        return bool(poll.poll(0))

    def how_it_ended(self) -> str:
        """Describes how it ended."""
        return "has ended with its t5x-harness warm"

    def log_tail(self) -> str:
        """Returns nothing: its output belongs to the process that keeps it."""
        return ""

    def stop(self, *, patient: bool) -> None:
        """Closes the connection; the zygote continues for other sessions."""
        self.control.close()

    def kill(self) -> None:
        """Ends another thread's wait for the zygote."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)


def _listen(socket_path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    socket_path.unlink(missing_ok=True)  # the socket of a process that has died
    with _short(socket_path) as path:
        listener.bind(path)
    listener.listen()
    return listener


@contextlib.contextmanager
def _short(socket_path: Path) -> Iterator[str]:
    """Yields a short path of the same file, because a socket's path may have 107 bytes at most."""
    folder = os.open(socket_path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{socket_path.name}"
    finally:
        os.close(folder)
