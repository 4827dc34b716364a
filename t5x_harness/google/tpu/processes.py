"""Finds and ends the processes of TPU VMs, even if they have detached themselves.

A process can leave its parent, session, folder and environment behind (``env -i setsid sh -c 'cd /; … &'``). It cannot
leave a hard resource limit, which its children inherit, and which only root may raise; a worker's root loses that
right. So each process of a TPU VM is marked by its limit of file locks, which Linux has ignored since 2.4. In a sandbox
that does not allow this limit, processes are found only by their environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.variables import TPU_VM_VARIABLE

SERVER_NAME = "google-emulator"
"""The name of a server's process in ``ps``."""

_LIMIT = 10  # RLIMIT_LOCKS
_MAGIC = 0x1A7
_UID_BITS, _PID_BITS = 32, 22
_UID = re.compile(r"[0-9a-f]{8}")
_POLL_SECONDS = 0.05
_MOST_POLLS = 100


@dataclasses.dataclass(frozen=True)
class VmProcess:
    """A process of a TPU VM.

    Attributes:
      pid: the process.
      folder: the TPU VM's folder from the process's environment; None if the environment does not have it.
      uid: the TPU VM's uid from the process's limit; empty if the process is not marked.
      server: the pid of the server that started it, from its limit; 0 if the process is not marked.
    """

    pid: int
    folder: Path | None
    uid: str
    server: int


def is_uid(name: str) -> bool:
    """Returns whether a name is a TPU VM's uid, which its folder is named by."""
    return _UID.fullmatch(name) is not None


def limit_of(uid: str) -> int:
    """Returns the limit that marks processes of a TPU VM as started by this server."""
    return (_MAGIC << _PID_BITS | os.getpid()) << _UID_BITS | int(uid, 16)


def end_processes(folder: Path) -> None:
    """Kills the processes of the TPU VM with this folder, including ones that they start meanwhile."""
    for _ in range(_MOST_POLLS):
        found = [each.pid for each in _processes() if each.folder == folder or each.uid == folder.name]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(_POLL_SECONDS)


def end_orphans() -> None:
    """Kills the processes of TPU VMs whose server was killed."""
    for each in _processes():
        if _is_orphan(each):
            _kill(each.pid)


def _is_orphan(found: VmProcess) -> bool:
    process = f"/proc/{found.pid}"
    if found.folder is not None:
        # The folder as the process sees it, which may be in a container with other folders.
        return not os.path.exists(f"{process}/root{found.folder}") and os.path.exists(f"{process}/root")
    with contextlib.suppress(OSError):
        if os.readlink(f"{process}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return False  # in another container, its server's pid means another process
    return not _is_server(found.server)


def _is_server(pid: int) -> bool:
    """Returns whether a pid is that of a running server, and not of one that has ended and is still listed."""
    with contextlib.suppress(OSError):
        named, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
        return named.endswith(f"({SERVER_NAME}") and rest[0] not in "ZX"
    return False


def _processes() -> Iterator[VmProcess]:
    """Yields the processes of TPU VMs that this user can inspect."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            uid, server = _mark_of(pid)
            folder = _folder_in(Path(f"/proc/{pid}/environ").read_bytes())
            if uid or folder:
                yield VmProcess(pid, folder, uid, server)


def _mark_of(pid: int) -> tuple[str, int]:
    """Returns the uid and the server in a process's limit; empty and 0 if it is not marked."""
    _, limit = resource.prlimit(pid, _LIMIT)
    if limit < 0 or limit >> (_UID_BITS + _PID_BITS) != _MAGIC:
        return "", 0
    return f"{limit & (1 << _UID_BITS) - 1:08x}", limit >> _UID_BITS & (1 << _PID_BITS) - 1


def _folder_in(environment: bytes) -> Path | None:
    mark = f"{TPU_VM_VARIABLE}=".encode()
    names = (each for each in environment.split(b"\0") if each.startswith(mark))
    return next((Path(os.fsdecode(each.removeprefix(mark))) for each in names), None)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
