"""The kernel's part of forbidding the network: it asks before it connects.

A filter (seccomp with user notification) makes the kernel hold each ``connect`` and each ``sendto`` with an address of
this process, its threads and all that they start, and ask a small process beside it, which looks at the address. What
is on this machine goes on; anything else gets EACCES, and a line on stderr that names host, port and program.

No privilege is needed, and nothing is changed but that set-user-ID programs do not gain privileges any more. Where the
kernel is too old, or does not let the memory of a process be read by another of the same user, nothing is refused by
the kernel. Not held are datagrams sent by ``sendmsg`` on unconnected sockets, and io_uring.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import select
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

from t5x_harness import network
from t5x_harness.side_process import side_process

__all__ = ["install"]

# linux/audit.h and the system call tables: the machine's number, connect, sendto, seccomp.
_CALLS = {"x86_64": (0xC000003E, 42, 44, 317), "aarch64": (0xC00000B7, 203, 206, 277)}
# linux/seccomp.h
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _NOTIFY = 0x7FFF_0000, 0x7FC0_0000
_NOTIFICATION, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE, _SEND = 0xC050_2100, 0xC018_2101
_CONTINUE = 1
# linux/prctl.h
_NO_NEW_PRIVILEGES, _SET_TRACER, _ANY_TRACER = 38, 0x5961_6D61, ctypes.c_ulong(-1)
# linux/filter.h
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
# Offsets in the struct that the filter sees: the machine, and the low and high half of the fifth argument.
_MACHINE, _NUMBER, _FIFTH_LOW, _FIFTH_HIGH = 4, 0, 48, 52
_LARGEST_ADDRESS = 28  # of the families that are looked at

_libc = ctypes.CDLL(None, use_errno=True)


def install() -> bool:
    """Installs the filter for the calling thread and all that it starts, for good.

    The process that answers is a child that is nobody's to wait for; it ends with the last process of the filter.

    Returns:
      Whether the kernel took it.
    """
    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        return False
    machine, connect, sendto, seccomp = calls
    with side_process("t5x-network", functools.partial(_answer_all, connect=connect)) as hand_over:
        # Where Yama keeps processes from reading each other, this one may be read.
        _libc.prctl(_SET_TRACER, _ANY_TRACER, 0, 0, 0)
        listener = _install(machine, connect, sendto, seccomp)
        if listener is None:
            return False
        hand_over(listener)
    return True


def _install(machine: int, connect: int, sendto: int, seccomp: int) -> int | None:
    statements = (
        (_LOAD, 0, 0, _MACHINE),
        (_JUMP_IF_EQUAL, 0, 7, machine),  # a program of another word size
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_IF_EQUAL, 6, 0, connect),
        (_JUMP_IF_EQUAL, 0, 4, sendto),
        (_LOAD, 0, 0, _FIFTH_LOW),  # sendto without an address, as send(2) is
        (_JUMP_IF_EQUAL, 0, 3, 0),
        (_LOAD, 0, 0, _FIFTH_HIGH),
        (_JUMP_IF_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *statement) for statement in statements))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(statements), ctypes.addressof(code)))
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = _libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, program)
    return None if listener < 0 else listener


class _Attempt(NamedTuple):
    """A system call that the kernel holds."""

    cookie: int
    pid: int
    is_connect: bool
    arguments: tuple[int, ...]

    def address(self) -> tuple[str, int] | None:
        """The IP address and port that it names; None for everything else, and for what cannot be read."""
        place, size = (self.arguments[1:3]) if self.is_connect else self.arguments[4:6]
        try:
            with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
                memory.seek(place)
                data = memory.read(min(size, _LARGEST_ADDRESS))
        except (OSError, ValueError, OverflowError):
            return None
        family = int.from_bytes(data[:2], sys.byteorder)
        port = int.from_bytes(data[2:4], "big")
        if family == socket.AF_INET and len(data) >= 8:
            return socket.inet_ntop(family, data[4:8]), port
        if family == socket.AF_INET6 and len(data) >= 24:
            return socket.inet_ntop(family, data[8:24]), port
        return None


def _answer_all(listener: int, connect: int) -> None:
    """Answers until no process with the filter is left."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        [(_, event)] = poll.poll()
        if not event & select.POLLIN:
            return
        message = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, message, True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the process was killed meanwhile
                continue
            return
        cookie, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(message)
        attempt = _Attempt(cookie, pid, number == connect, tuple(arguments))
        address = attempt.address()
        refused = address is not None and not network.is_here(address[0])
        if refused and address:
            _tell(attempt, *address)
        answer = _ANSWER.pack(cookie, 0, -errno.EACCES if refused else 0, 0 if refused else _CONTINUE)
        with contextlib.suppress(OSError):  # the process was killed meanwhile
            fcntl.ioctl(listener, _SEND, answer)


def _tell(attempt: _Attempt, host: str, port: int) -> None:
    try:
        program = Path(f"/proc/{attempt.pid}/comm").read_text().strip()
    except OSError:
        program = "a process that is gone"
    text = f"t5x-harness: refused {program} {host}, port {port}: runs reach loopback only; {network.HOW_TO_ALLOW}\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
