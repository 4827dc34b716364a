"""The guard of one process of a job: starts the process, watches it, and leaves nothing of it behind.

Like a container, the job ends with its main process, even if other processes were started in it. It also ends with the
server: the connection on which the guard receives orders closes however the server ends, even by ``kill -9``.

Only the standard library is used, because this runs before every process of every job.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from t5x_harness.google.product import PRODUCT
from t5x_harness.system import processes

STOP = b"stop "
"""The prefix of the order that ends the process. The seconds between SIGTERM and SIGKILL follow it."""

# The statuses that a shell reports.
NOT_EXECUTABLE, NOT_FOUND = 126, 127

# The longest argument, or variable including its name: the kernel's MAX_ARG_STRLEN without the null byte at the end.
_LONGEST = 32 * 4096 - 1
_SHOWN = 40


def main(arguments: Sequence[str]) -> None:
    """Runs one process, as the child of a server.

    Args:
      arguments: the descriptor of the connection. The server's first line on it is a JSON object: ``words`` of the
        command, its ``environment`` and its ``folder``. The answer, when no process is left, is a JSON object with the
        ``status``, as a shell reports it.
    """
    server = socket.socket(fileno=int(arguments[0]))
    task, orders = _read_task(server)
    processes.adopt_orphans()
    processes.name_process("vertex-job")
    awake, _ = processes.watch_children()
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        server.close()
        _become(task, guard)
    # This way, the output ends once the process and everything that it started have ended.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    status = _ProcessWatch(server, child, awake, orders).until_the_end()
    processes.clear_below()
    with contextlib.suppress(ConnectionError):  # the server has ended
        server.sendall(json.dumps({"status": status}).encode())


def _read_task(server: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Returns the task, and the orders that came with it."""
    text = b""
    while b"\n" not in text:
        data = server.recv(1 << 16)
        if not data:
            sys.exit(0)  # the server has ended before the task began
        text += data
    line, _, orders = text.partition(b"\n")
    return json.loads(line), orders


def _become(task: dict[str, Any], guard: int) -> None:
    """Turns this fork into the process; never returns."""
    words: list[str] = task["words"]
    try:
        processes.reset_signals()
        os.setsid()
        processes.die_with_parent(guard)
        os.chdir(task["folder"])
        os.execvpe(words[0], words, task["environment"])
    except (FileNotFoundError, NotADirectoryError):
        _say(f"{words[0]}: command not found")
        os._exit(NOT_FOUND)
    except OSError as error:
        _say(_cannot_be_given(task) or f"{words[0]}: cannot be run: {error.strerror or error}")
    except ValueError as error:  # a null character, or a variable's name with an equals sign
        _say(_cannot_be_given(task) or f"{words[0]}: cannot be run: {error}")
    finally:
        os._exit(NOT_EXECUTABLE)


def _cannot_be_given(task: dict[str, Any]) -> str:
    """Returns which argument or variable cannot be passed to a process, and why; empty if all can."""
    arguments = [(f"the argument {word[:_SHOWN]!r}", word) for word in task["words"]]
    variables = [(f"the variable {name}", f"{name}={value}") for name, value in task["environment"].items()]
    for what, text in (*arguments, *variables):
        if "\0" in text:
            return f"{what} has a null character in it, which no process can be given"
        if (size := len(os.fsencode(text))) > _LONGEST:
            return (
                f"{what} has {size:,} bytes, and Linux gives a process at most {_LONGEST:,} in one: put it into a file"
            )
    return ""


def _say(text: str) -> None:
    os.write(2, f"{PRODUCT}: {text}\n".encode())


class _ProcessWatch:
    def __init__(self, server: socket.socket, child: int, awake: int, orders: bytes) -> None:
        self._server = server
        self._child = child
        self._awake = awake
        self._orders = b""
        self._deadline: float | None = None
        self._take(orders)

    def until_the_end(self) -> int:
        """Waits for the process to end, following the server's orders in the meantime, and returns its status."""
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        poll.register(self._awake, select.POLLIN)
        while (status := self._reap()) is None:
            left = None if self._deadline is None else max(0, round((self._deadline - time.monotonic()) * 1000))
            ready = [descriptor for descriptor, _ in poll.poll(left)]
            if self._awake in ready:
                os.read(self._awake, 4096)
            if self._server.fileno() in ready and not self._obey():
                break
            if self._deadline is not None and time.monotonic() >= self._deadline:
                break
        return 128 + signal.SIGKILL if status is None else status

    def _obey(self) -> bool:
        """Follows an order; returns False if the server has ended."""
        try:
            data = self._server.recv(4096)
        except ConnectionError:
            return False
        self._take(data)
        return bool(data)

    def _take(self, data: bytes) -> None:
        *lines, self._orders = (self._orders + data).split(b"\n")
        for line in lines:
            deadline = time.monotonic() + float(line.removeprefix(STOP))
            if self._deadline is None:
                processes.kill_quietly(self._child, signal.SIGTERM)
                processes.kill_quietly(self._child, signal.SIGCONT)  # a stopped process would not handle SIGTERM
            self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)

    def _reap(self) -> int | None:
        """Reaps processes that have ended; returns the main process's status if it is one of them."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return None
            if pid == self._child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
