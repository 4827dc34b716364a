"""An object for runs to hold that reaches out in every way; imported by the runs."""

from __future__ import annotations

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


class Client:
    """Every method answers ``done``, or with the reason that it failed for."""

    def __init__(self, argument: Any, progress: Any) -> None:
        pass

    def connect(self, host: str, port: int) -> str:
        socket.create_connection((host, port), timeout=5).close()
        return "done"

    def connect_natively(self, host: str, port: int) -> str:
        return self._call("connect", socket.SOCK_STREAM, host, port)

    def send_natively(self, host: str, port: int) -> str:
        return self._call("sendto", socket.SOCK_DGRAM, host, port)

    def connect_in_child(self, host: str, port: int) -> str:
        words = [sys.executable, "-I", "-c", CODE, host, str(port)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def talk(self) -> str:
        """Sends without an address, which needs nobody's leave."""
        ours, theirs = socket.socketpair()
        ours.sendall(b"through a pair of sockets")
        return theirs.recv(99).decode()

    def guards(self) -> dict[str, Any]:
        status = Path("/proc/self/status").read_text()
        kernel = next(line.split()[1] for line in status.splitlines() if line.startswith("Seccomp_filters:"))
        return {"python": socket.socket.connect.__name__ == "guarded", "kernel": kernel}

    def _call(self, name: str, kind: int, host: str, port: int) -> str:
        address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)
        libc = ctypes.CDLL(None, use_errno=True)
        with socket.socket(socket.AF_INET, kind) as client:
            arguments = (b"x", 1, 0, address, 16) if name == "sendto" else (address, 16)
            failed = getattr(libc, name)(client.fileno(), *arguments) < 0
        return os.strerror(ctypes.get_errno()) if failed else "done"
