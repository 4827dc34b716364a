"""Which of several processes of a user does what all of them need."""

import errno
import os
import socket


def is_first(sign: socket.socket, what: str) -> bool:
    """Returns whether no other process does something; says to them that this one does, until ``sign`` is closed.

    Args:
      sign: a new socket of the family ``AF_UNIX``.
      what: a short name for it, the same in all processes.
    """
    try:
        sign.bind(f"\0t5x-harness-{os.getuid()}-{what}")
    except OSError as error:
        return error.errno != errno.EADDRINUSE  # where there are no such names, each process does it for itself
    return True
