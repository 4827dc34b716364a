"""An object that tries every way to reach the network; imported by the runs."""

import ctypes
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

CODE = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
except OSError as error:
    print(error.strerror or error)
else:
    print("done")
"""

LIBC = ctypes.CDLL(None, use_errno=True)


class Client:
    """Tries connections; every method returns ``done``, or the reason for its failure."""

    def __init__(self, argument: Any, progress: Any) -> None:
        pass

    def connect(self, host: str, port: int) -> str:
        socket.create_connection((host, port), timeout=5).close()
        return "done"

    def connect_natively(self, host: str, port: int) -> str:
        return self._call("connect", socket.SOCK_STREAM, host, port)

    def send_natively(self, host: str, port: int) -> str:
        return self._call("sendto", socket.SOCK_DGRAM, host, port)

    def open_fast_natively(self, host: str, port: int) -> str:
        """Connects by sending, with TCP fast open."""
        return self._call("sendmsg", socket.SOCK_STREAM, host, port)

    def broadcast_natively(self, host: str, port: int) -> str:
        return self._call("sendto", socket.SOCK_DGRAM, host, port)

    def make_socket(self, family: int) -> str:
        failed = LIBC.socket(family, socket.SOCK_DGRAM, 0) < 0
        return os.strerror(ctypes.get_errno()) if failed else "done"

    def set_up_io_uring(self) -> str:
        failed = LIBC.syscall(425, 1, ctypes.create_string_buffer(256)) < 0
        return os.strerror(ctypes.get_errno()) if failed else "done"

    def connect_in_child(self, host: str, port: int) -> str:
        words = [sys.executable, "-I", "-c", CODE, host, str(port)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def talk(self) -> str:
        """Sends without an address, which needs no permission."""
        ours, theirs = socket.socketpair()
        ours.sendall(b"through a pair of sockets")
        return theirs.recv(99).decode()

    def guards(self) -> dict[str, Any]:
        status = Path("/proc/self/status").read_text()
        kernel = next(line.split()[1] for line in status.splitlines() if line.startswith("Seccomp_filters:"))
        return {"python": socket.socket.connect.__name__ == "guarded", "kernel": kernel}

    def _call(self, name: str, kind: int, host: str, port: int) -> str:
        address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)
        with socket.socket(socket.AF_INET, kind) as client:
            if kind == socket.SOCK_DGRAM:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            if name == "sendmsg":
                named, sent = ctypes.create_string_buffer(address), ctypes.create_string_buffer(b"x")
                parts = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(sent), 1))
                places = ctypes.addressof(named), 16, ctypes.addressof(parts), 1, 0, 0, 0
                arguments: tuple[Any, ...] = (struct.pack("@PIPNPNi", *places), socket.MSG_FASTOPEN)
            else:
                arguments = (b"x", 1, 0, address, 16) if name == "sendto" else (address, 16)
            failed = getattr(LIBC, name)(client.fileno(), *arguments) < 0
        return os.strerror(ctypes.get_errno()) if failed else "done"
