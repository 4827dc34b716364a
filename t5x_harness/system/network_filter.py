"""The kernel's part in forbidding the network, and checks for this machine's addresses, names, URLs and free ports.

A filter (seccomp with user notification) makes the kernel stop some system calls of this process, its threads and all
processes that they start: each ``connect``, each ``sendto`` with an address, each ``sendmsg`` or ``sendmmsg`` that
opens a connection (TCP fast open), and each ``socket`` of an unusual family. It asks a small helper process, which
checks the address. A call to this machine continues; any other gets EACCES and a line on stderr that names host, port
and program. io_uring, which could do all of this unseen, is not available there (ENOSYS), as in Docker's containers.

The filter requires no privileges, and its only other effect is that set-user-ID programs gain none. If the kernel is
too old, or does not let a process read the memory of the same user's other processes, it refuses nothing. Datagrams
that ``sendmsg`` sends on unconnected sockets are not checked.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import ipaddress
import os
import select
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

from t5x_harness.system.processes import side_process

HOW_TO_ALLOW = "allow it with @pytest.mark.network, pytest's --t5x-network=allow, or --network=allow of t5x-harness"
"""The end of every refusal of an address beyond this machine."""

_DISCARD = 9  # a port


def is_here(address: str) -> bool:
    """Returns whether an IP address belongs to this machine: loopback, unspecified, or an interface's address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    if ip.is_loopback or ip.is_unspecified:
        return True
    if ip.is_multicast:
        return False
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))  # the kernel does not bind another machine's address
            # It does bind broadcast addresses, but connects to them only if the socket allows broadcasts. Nothing is
            # sent. The method is that of the interpreter's own class, which no guard has replaced.
            super(socket.socket, probe).connect((str(ip), _DISCARD))
        except OSError:
            return False
    return True


def is_here_name(name: str) -> bool:
    """Returns whether a host name or an IP address belongs to this machine."""
    plain = name.lower().rstrip(".")
    own = {"localhost", socket.gethostname().lower(), "ip6-localhost", "ip6-loopback"}
    return plain in own or plain.endswith(".localhost") or is_here(plain)


def is_here_url(url: str) -> bool:
    """Returns whether a URL, or a host with a port, leads to this machine."""
    from urllib.parse import urlsplit

    host = urlsplit(url if "//" in url else f"//{url}").hostname
    return bool(host) and is_here_name(str(host))


def free_ports(count: int) -> list[int]:
    """Returns that many different ports of this machine on which no program listens.

    They are not reserved: the program that needs them binds them a moment later.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


class _CallNumbers(NamedTuple):
    """Numbers from linux/audit.h and the system call tables."""

    machine: int
    connect: int
    sendto: int
    sendmsg: int
    sendmmsg: int
    socket: int
    seccomp: int
    io_uring_setup: int = 425


_CALLS = {
    "x86_64": _CallNumbers(0xC000003E, connect=42, sendto=44, sendmsg=46, sendmmsg=307, socket=41, seccomp=317),
    "aarch64": _CallNumbers(0xC00000B7, connect=203, sendto=206, sendmsg=211, sendmmsg=269, socket=198, seccomp=277),
}
# linux/seccomp.h
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _NOTIFY, _REFUSE = 0x7FFF_0000, 0x7FC0_0000, 0x0005_0000
_NOTIFICATION, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE, _SEND = 0xC050_2100, 0xC018_2101
_CONTINUE = 1
# linux/prctl.h
_NO_NEW_PRIVILEGES, _SET_TRACER, _ANY_TRACER = 38, 0x5961_6D61, ctypes.c_ulong(-1)
# linux/filter.h
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
# Offsets in the struct that the filter sees: the machine, the call, and the low halves of arguments.
_MACHINE, _NUMBER = 4, 0
_FIRST, _THIRD, _FOURTH, _FIFTH = 16, 32, 40, 48
_HIGH = 4
_FAST_OPEN = 0x2000_0000  # MSG_FASTOPEN
# Families that do not leave this machine, or whose addresses are checked.
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, 38)  # AF_ALG, the kernel's ciphers
_MESSAGE_HEADER = struct.Struct("@PI")  # the start of struct msghdr: the pointer to the address, and its size
_LARGEST_ADDRESS = 28  # of the checked families

_libc = ctypes.CDLL(None, use_errno=True)


def install() -> bool:
    """Permanently installs the filter for the calling thread and everything that it starts.

    The process that answers is a child that no one waits for; it ends with the last process of the filter.

    Returns:
      Whether the kernel accepted it.
    """
    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        return False
    with side_process("t5x-network-end", functools.partial(_answer_and_watch, calls=calls)) as hand_over:
        # If Yama keeps processes from reading each other, this allows reading this one.
        _libc.prctl(_SET_TRACER, _ANY_TRACER, 0, 0, 0)
        listener = _install(calls)
        if listener is None:
            return False
        hand_over(listener)
    return True


def _install(calls: _CallNumbers) -> int | None:
    statements = _program(calls)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *statement) for statement in statements))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(statements), ctypes.addressof(code)))
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = _libc.syscall(calls.seccomp, _SET_MODE_FILTER, _NEW_LISTENER, program)
    return None if listener < 0 else listener


def _program(calls: _CallNumbers) -> list[tuple[int, int, int, int]]:
    """Returns the filter, in pieces that each end with a decision or are skipped."""
    allow, notify = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)
    pieces = [
        [(_LOAD, 0, 0, _MACHINE), (_JUMP_IF_EQUAL, 1, 0, calls.machine), allow],  # a program with another word size
        [(_LOAD, 0, 0, _NUMBER)],
        _of(calls.connect, notify),
        _of(calls.io_uring_setup, (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)),
        _of(calls.sendmsg, (_LOAD, 0, 0, _THIRD), (_JUMP_IF_SET, 1, 0, _FAST_OPEN), allow, notify),
        _of(calls.sendmmsg, (_LOAD, 0, 0, _FOURTH), (_JUMP_IF_SET, 1, 0, _FAST_OPEN), allow, notify),
        _of(
            calls.sendto,  # without an address it is like send(2)
            (_LOAD, 0, 0, _FIFTH),
            (_JUMP_IF_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, _FIFTH + _HIGH),
            (_JUMP_IF_EQUAL, 0, 1, 0),
            allow,
            notify,
        ),
        _of(
            calls.socket,
            (_LOAD, 0, 0, _FIRST),
            *((_JUMP_IF_EQUAL, len(_FAMILIES) - number, 0, family) for number, family in enumerate(_FAMILIES)),
            notify,
            allow,
        ),
        [allow],
    ]
    return [statement for piece in pieces for statement in piece]


def _of(call: int, *statements: tuple[int, int, int, int]) -> list[tuple[int, int, int, int]]:
    """Returns the piece for a system call, whose number is loaded; for other calls, it jumps past its own end."""
    return [(_JUMP_IF_EQUAL, 0, len(statements), call), *statements]


class _StoppedCall(NamedTuple):
    """A system call that the kernel has stopped."""

    pid: int
    number: int
    arguments: tuple[int, ...]

    def refused(self, calls: _CallNumbers) -> str:
        """Returns the target beyond this machine; empty if there is none, or if it cannot be read."""
        if self.number == calls.socket:
            return f"a socket of the family {_family_name(self.arguments[0])}"
        address = self._address(calls)
        return "" if address is None or is_here(address[0]) else f"{address[0]}, port {address[1]}"

    def _address(self, calls: _CallNumbers) -> tuple[str, int] | None:
        """Returns the IP address and port that the call names."""
        try:
            with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
                if self.number in (calls.sendmsg, calls.sendmmsg):
                    memory.seek(self.arguments[1])
                    place, size = _MESSAGE_HEADER.unpack(memory.read(_MESSAGE_HEADER.size))
                else:
                    place, size = self.arguments[1:3] if self.number == calls.connect else self.arguments[4:6]
                memory.seek(place)
                data = memory.read(min(size, _LARGEST_ADDRESS))
        except (OSError, ValueError, OverflowError, struct.error):
            return None
        family = int.from_bytes(data[:2], sys.byteorder)
        port = int.from_bytes(data[2:4], "big")
        if family == socket.AF_INET and len(data) >= 8:
            return socket.inet_ntop(family, data[4:8]), port
        if family == socket.AF_INET6 and len(data) >= 24:
            return socket.inet_ntop(family, data[8:24]), port
        return None


def _answer_and_watch(listener: int, calls: _CallNumbers) -> None:
    """Answers in a child, and reports if the child is killed, because connections then fail for no visible reason."""
    child = os.fork()
    if child == 0:
        Path("/proc/self/comm").write_text("t5x-network")
        _answer_all(listener, calls)
        os._exit(0)
    os.close(listener)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        from t5x_harness.system.diagnosis import describe_status  # imported here, so that no command waits for it

        _write(
            f"t5x-harness: the process t5x-network {describe_status(status)}, which decides what may be reached: every "
            "connection fails now, on this machine, too (ENOSYS, function not implemented); start anew"
        )


def _answer_all(listener: int, calls: _CallNumbers) -> None:
    """Answers until the last process with the filter has ended."""
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
            if error.errno in (errno.ENOENT, errno.EINTR):  # the process has been killed
                continue
            return
        cookie, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(message)
        attempt = _StoppedCall(pid, number, tuple(arguments))
        refused = attempt.refused(calls)
        if refused:
            _tell(attempt, refused)
        answer = _ANSWER.pack(cookie, 0, -errno.EACCES if refused else 0, 0 if refused else _CONTINUE)
        with contextlib.suppress(OSError):  # the process has been killed
            fcntl.ioctl(listener, _SEND, answer)


def _family_name(number: int) -> str:
    try:
        return socket.AddressFamily(number & 0xFFFF_FFFF).name
    except ValueError:
        return str(number)


def _tell(attempt: _StoppedCall, what: str) -> None:
    try:
        program = Path(f"/proc/{attempt.pid}/comm").read_text().strip()
    except OSError:
        program = "a process that is gone"
    _write(f"t5x-harness: refused {program} {what}: runs reach loopback only; {HOW_TO_ALLOW}")


def _write(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())
