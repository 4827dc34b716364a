"""Which user of this machine is at the other end of a connection, so that no other user is served."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Collection
from pathlib import Path

Address = tuple[str, int]
"""An IPv4 host and a port."""

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI")  # the beginning of inet_diag_req_v2: family, protocol, extensions, states
_SOCKET_ID = struct.Struct("!HH4s12x4s12x")  # the beginning of inet_diag_sockid: ports and addresses
_NO_COOKIE = b"\xff" * 8
_UID_AND_INODE = struct.Struct("=II")
_UID_AT = _HEADER.size + 64  # in an answer: after the fields of inet_diag_msg up to idiag_wqueue
_ANY_STATE = 0xFFFFFFFF

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

# Returns the uid and the inode of a socket, or None if there is no such socket. An inode of 0 means that its owner has
# closed it.
Reader = Callable[[Address, Address], tuple[int, int] | None]


class Peers:
    """Decides whose connections are served: those of the user that runs this process, and those of root.

    Root can read this user's files and memory in any case, so refusing it would protect nothing.

    Args:
      served: other uids to serve instead of these two.
    """

    def __init__(self, served: Collection[int] = ()) -> None:
        self._served = frozenset(served or (0, os.geteuid()))
        self._diag: socket.socket | None = None
        self._read = next((reader for reader in (self._ask_kernel, _search_tables) if _works(reader)), None)

    @property
    def known(self) -> bool:
        """Whether this system reports the owners of connections. If not, every user's connections are served."""
        return self._read is not None

    def refusal(self, peer: Address, local: Address) -> str | None:
        """Returns None if a connection is served, and otherwise why not; empty if the client is gone."""
        if self._read is None:
            return None
        try:
            found = self._read(peer, local)
        except OSError as error:
            self.close()  # a late answer must not be taken for the next one
            return f"its owner cannot be read: {error.strerror or error}"
        if found is None or not found[1]:
            return ""  # the client has closed it; a socket without an owner is listed as root's
        return None if found[0] in self._served else f"it belongs to the user with uid {found[0]}"

    def close(self) -> None:
        """Closes the connection to the kernel. May be called again."""
        if self._diag is not None:
            self._diag.close()
            self._diag = None

    def _ask_kernel(self, peer: Address, local: Address) -> tuple[int, int] | None:
        """Asks the kernel for one socket with sock_diag(7), in a time that does not depend on the number of sockets."""
        if self._diag is None:
            self._diag = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
            # The kernel enforces the timeout, so no call has to poll first.
            self._diag.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 1, 0))
        ends = _SOCKET_ID.pack(peer[1], local[1], socket.inet_aton(peer[0]), socket.inet_aton(local[0]))
        asked = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY_STATE) + ends + b"\0" * 4 + _NO_COOKIE
        self._diag.send(_HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + asked)
        reply = self._diag.recv(4096)
        if _HEADER.unpack_from(reply)[1] != _SOCK_DIAG_BY_FAMILY:  # NLMSG_ERROR
            (number,) = struct.unpack_from("=i", reply, _HEADER.size)
            if -number == errno.ENOENT:
                return None
            raise OSError(-number, os.strerror(-number))
        uid, inode = _UID_AND_INODE.unpack_from(reply, _UID_AT)
        return uid, inode


def _search_tables(peer: Address, local: Address) -> tuple[int, int] | None:
    """Searches the list of all sockets, for kernels and sandboxes without sock_diag."""
    ends = tuple(f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}" for host, port in (peer, local))
    for table in _TABLES:
        with contextlib.suppress(FileNotFoundError), table.open() as lines:  # no IPv6
            for line in lines:
                fields = line.split()
                # A client may use an IPv6 socket with an IPv4 address, which then is the end of the field.
                if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                    return int(fields[7]), int(fields[9])
    return None


def _works(reader: Reader) -> bool:
    """Returns whether a reader recognizes a connection that this process makes as its own."""
    with (
        contextlib.suppress(OSError, struct.error, ValueError, IndexError),
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
        contextlib.closing(server.accept()[0]),
    ):
        found = reader(connection.getsockname(), server.getsockname())
        return found is not None and found[0] == os.geteuid() and found[1] != 0
    return False
