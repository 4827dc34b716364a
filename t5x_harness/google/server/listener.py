"""A port of the server, which accepts only connections of its own user, and the open connections of all ports."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Protocol

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.settings import ServerError

BUSY = float("inf")

_HEAD_SECONDS = 60.0
_CHECKS = 4  # the number of checks in that time


class Waiting(Protocol):
    """A connection that requests arrive on."""

    waits_since: float  # when it became idle, by ``time.monotonic``; :data:`BUSY` while a request is answered
    head_since: float  # when the first bytes of an incomplete head arrived; otherwise :data:`BUSY`

    def give_up(self) -> None:
        """Closes it because it is idle, or because a head does not end."""

    def shut_down(self) -> None:
        """Closes it as soon as it is idle."""


class Connections(set[Waiting]):
    """The open connections of a server.

    Idle connections stay open: clients use them again after pauses, and closing one at that moment costs an upload.
    If descriptors run out, the connection that has been idle longest is closed.

    Args:
      most: the number of connections at which an idle one is closed for a new one.
    """

    def __init__(self, most: int = 1 << 30, head_seconds: float = _HEAD_SECONDS) -> None:
        super().__init__()
        self._most = most
        self._head_seconds = head_seconds

    def make_room(self, *, full: bool = False) -> bool:
        """Closes the connection that has been idle longest, if there are too many; returns whether there is room now.

        With ``full``, any number counts as too many.
        """
        if not full and len(self) < self._most:
            return True
        longest = min(self, key=lambda it: it.waits_since, default=None)
        if longest is None or longest.waits_since == BUSY:
            return False
        self.discard(longest)
        longest.give_up()
        return True

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Closes connections with heads that do not end, for the duration of the block."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(self._head_seconds / _CHECKS)
                late = time.monotonic() - self._head_seconds
                for connection in [each for each in self if each.head_since < late]:
                    connection.give_up()

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()


class ThrottledLog:
    """Writes at most one line a second, and counts the lines that it leaves out."""

    def __init__(self) -> None:
        self._next = 0.0
        self._left_out = 0

    def write(self, text: str) -> None:
        """Writes a line, or counts it for the next line that is written."""
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        more = f" (and {self._left_out} more such lines since the last one)" if self._left_out else ""
        print(f"{PRODUCT}: {text}{more}", file=sys.stderr, flush=True)
        self._next, self._left_out = now + 1.0, 0


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

# Returns the uid and the inode of a socket, or None if it does not exist. An inode of 0 means that its owner has
# closed it.
Reader = Callable[[Address, Address], tuple[int, int] | None]


class Peers:
    """Decides whose connections are served: those of the users ``served``, by default this process's user and root.

    Root can read this user's files and memory in any case, so refusing it would protect nothing.
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
        """Returns None if a connection is served, and otherwise the reason; it is empty if the client is gone."""
        if self._read is None:
            return None
        try:
            found = self._read(peer, local)
        except OSError as error:
            self.close()  # a late answer must not count as the next one
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
        """Asks the kernel for one socket with sock_diag(7); the time does not depend on the number of sockets."""
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
    """Searches the list of all sockets, on kernels and in sandboxes without sock_diag."""
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


_BACKLOG = 1024
_AT_ONCE = 64  # connections that are accepted before open ones are served again
_PAUSE_SECONDS = 1.0
_OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class PortListener:
    """One port on 127.0.0.1.

    asyncio's own server accepts every user's connections, and logs a traceback whenever it runs out of descriptors.

    Args:
      tls: the context of a TLS port; None for a plain one.
      connections: the server's connections; idle ones are closed to make room for new ones.

    Raises:
      ServerError: the port cannot be opened; the message says why.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        port: int,
        tls: ssl.SSLContext | None,
        *,
        peers: Peers,
        connections: Connections,
        log: ThrottledLog,
    ) -> None:
        self._protocol, self._tls = protocol, tls
        self._peers, self._connections, self._log = peers, connections, log
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        try:
            self._socket = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ServerError(f"port {port} is not available: {reason}; name another one, or none for any") from None
        self._socket.setblocking(False)
        self._address = self._socket.getsockname()
        self._loop.add_reader(self._socket, self._accept)

    @property
    def port(self) -> int:
        return int(self._address[1])

    def close(self) -> None:
        """Accepts no more connections; open ones stay open."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._beginning:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF:
                    raise
                if not self._connections.make_room(full=True):
                    self._log.write(
                        f"cannot accept a connection: {error.strerror}, and none of the "
                        f"{len(self._connections)} open ones is idle; see ulimit -n"
                    )
                    self._loop.remove_reader(self._socket)
                    self._resuming = self._loop.call_later(_PAUSE_SECONDS, self._resume)
                return  # a closed connection frees its descriptor in the loop's next iteration
            refusal = self._peers.refusal(peer, self._address)
            if refusal is not None:
                connection.close()
                if refusal:
                    self._log.write(
                        f"a connection to port {self.port} is refused: {refusal}; only the user who started the "
                        "emulated Google Cloud, and root, may use it"
                    )
                continue
            self._connections.make_room()
            connection.setblocking(False)
            task = self._loop.create_task(self._begin(connection))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._socket, self._accept)

    async def _begin(self, connection: socket.socket) -> None:
        # The client may go away, not speak TLS or not trust the CA; it reports that itself.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
