"""A small process beside this one that serves a descriptor of the kernel, for a file system or a filter.

Only the standard library is used, because commands wait for this before they begin.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def side_process(name: str, serve: Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    """Forks a process that waits for a descriptor and serves it; the calling process must have a single thread.

    The new process is detached from this one and from terminals, stays out of the namespaces that this process enters
    in the block, keeps none of its descriptors but stderr, and ends at once if it gets no descriptor.

    Args:
      name: its name, at most 15 bytes.
      serve: called there with the descriptor; the process ends when it returns.

    Yields:
      The function that hands over the descriptor, which is being served when it returns.
    """
    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        _detach_and_serve(theirs, name, serve)
    theirs.close()
    os.waitpid(child, 0)
    with mine:
        yield functools.partial(_hand_over, mine)


def _hand_over(connection: socket.socket, descriptor: int) -> None:
    socket.send_fds(connection, [b"d"], [descriptor])
    os.close(descriptor)
    connection.recv(1)


def _detach_and_serve(connection: socket.socket, name: str, serve: Callable[[int], None]) -> None:
    """Detaches from the terminal and serves; never returns."""
    try:
        os.setsid()
        if os.fork() == 0:
            _keep_only(connection)
            os.chdir("/")
            Path("/proc/self/comm").write_text(name)
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            if descriptors:
                connection.send(b"r")
                connection.close()
                serve(descriptors[0])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _keep_only(connection: socket.socket) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != connection.fileno():
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))
