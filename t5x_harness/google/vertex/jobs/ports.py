"""Ports for replicas that talk to each other."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["free_ports"]


def free_ports(count: int) -> list[int]:
    """So many different ports of this machine that nobody listens on.

    They are not kept: whoever they are for binds them a moment later, as with every port that is chosen for a program
    which does not say which one it got.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
