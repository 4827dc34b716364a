"""The guard of one run: forks it, watches it, and leaves nothing of it behind.

A guard reaps its run: every process that the run starts, however often it forks and detaches, ends up below it. The
guard kills them when the run ends, when the parent asks for it, or when the parent is gone. It runs hardly any code, so
that a run that is stuck, stopped or out of memory cannot take it along.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_harness.system import processes
from t5x_harness.system.diagnosis import signal_name
from t5x_harness.workers import framing, run_process

CLEARING_SECONDS = 8.0


def guard(
    order: socket.socket,
    link: socket.socket,
    *,
    log: int,
    parent: int | None,
    imported: Mapping[str, str],
    path: Sequence[str] | None,
) -> None:
    """Runs one guard, in a process just forked from the zygote. Never returns.

    Args:
      order: the connection to the parent for orders and reports; if it closes, the run must end.
      link: the run's own connection.
      log: the descriptor of the run's log.
      parent: a pidfd of the parent, readable when the parent has ended; None if the kernel has none.
      imported: see :func:`run_process.run`.
      path: see :func:`run_process.run`.
    """
    status = 1
    try:
        processes.reset_signals()
        os.setsid()
        processes.adopt_orphans()
        processes.name_process("t5x-guard")
        awake, waker = processes.watch_children()
        me = os.getpid()
        child = os.fork()
        if child == 0:
            for descriptor in (awake, waker, *(() if parent is None else (parent,))):
                os.close(descriptor)
            order.close()
            run_process.run(link, log=log, guard=me, imported=imported, path=path)
        link.close()
        os.close(log)
        _RunWatch(order, child, awake, parent).until_the_end()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class _RunWatch:
    def __init__(self, order: socket.socket, child: int, awake: int, parent: int | None) -> None:
        self._order = order
        self._channel = framing.FrameReader()
        self._child = child
        self._awake = awake
        self._parent = parent
        self._status: int | None = None
        self._folder: str | None = None  # removed with the run

    def until_the_end(self) -> None:
        self._report({"pid": self._child})
        poll = select.poll()
        for descriptor in (self._order.fileno(), self._awake, *(() if self._parent is None else (self._parent,))):
            poll.register(descriptor, select.POLLIN)
        while self._status is None:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._awake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._awake, 4096)
                self._reap()
            if self._parent in ready or (self._order.fileno() in ready and not self._obey()):
                break
        processes.clear_below(CLEARING_SECONDS)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._report({"ended": self._status})

    def _report(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the parent is gone, so that only the cleanup remains
            self._order.sendall(framing.encode(message))

    def _obey(self) -> bool:
        """Carries out the parent's order; returns False if the run is to end."""
        try:
            data = self._order.recv(4096)
        except ConnectionError:
            return False
        for message in self._channel.feed(data):
            if isinstance(message, dict):
                self._folder = message["remove"]
            elif message == "stacks":
                processes.kill_quietly(self._child, processes.STACK_SIGNAL)
                processes.kill_quietly(self._child, signal.SIGCONT)  # a stopped process should also write its stacks
        return bool(data)

    def _reap(self) -> None:
        """Reaps processes that have ended, and notes whether the run has changed its state."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid != self._child:
                continue
            if os.WIFSTOPPED(status):
                self._report({"stopped": signal_name(os.WSTOPSIG(status))})
            elif os.WIFCONTINUED(status):
                self._report({"stopped": None})
            else:
                self._status = status
