"""The processes of TPU VMs: how they are found again, whatever they have done to be on their own, and ended.

A process can leave its parent, session, folder and environment behind (``env -i setsid sh -c 'cd /; … &'``). It cannot
leave a hard resource limit: that passes to all that it starts, and only root may raise it, who loses the right to on a
worker. So each process of a TPU VM has a mark in its limit of file locks, which Linux has not applied since 2.4.
Where a sandbox takes no such limit, the environment is all there is.
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
"""The name of a server's process, as ``ps`` shows it."""

_LIMIT = 10  # RLIMIT_LOCKS
_MAGIC = 0x1A7
_UID_BITS, _PID_BITS = 32, 22
_UID = re.compile(r"[0-9a-f]{8}")
_LOOK_SECONDS = 0.05
_LOOKS = 100


@dataclasses.dataclass(frozen=True)
class VmProcess:
    """A process of a TPU VM.

    Attributes:
      folder: of its TPU VM, as its environment names it; None if it has another environment now.
      uid: of its TPU VM, as its limit says; empty if that says nothing.
      server: the process that it was started by; 0 if its limit says nothing.
    """

    pid: int
    folder: Path | None
    uid: str
    server: int


def is_uid(name: str) -> bool:
    """Returns whether a name is one that folders of TPU VMs have: their uid."""
    return _UID.fullmatch(name) is not None


def limit_of(uid: str) -> int:
    """Returns the limit that marks the processes of a TPU VM that this server starts."""
    return (_MAGIC << _PID_BITS | os.getpid()) << _UID_BITS | int(uid, 16)


def end_processes(folder: Path) -> None:
    """Kills the processes of the TPU VM with this folder, and waits for it.

    A process that a killed one has just started is found by the next look.
    """
    for _ in range(_LOOKS):
        found = [each.pid for each in _processes() if each.folder == folder or each.uid == folder.name]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(_LOOK_SECONDS)


def end_orphans() -> None:
    """Kills the processes of TPU VMs whose folder is gone: those of a server that was killed."""
    for each in _processes():
        if _is_orphan(each):
            _kill(each.pid)


def _is_orphan(found: VmProcess) -> bool:
    process = f"/proc/{found.pid}"
    if found.folder is not None:
        # As the process sees it: it may be in a container, whose folders are not here.
        return not os.path.exists(f"{process}/root{found.folder}") and os.path.exists(f"{process}/root")
    with contextlib.suppress(OSError):
        if os.readlink(f"{process}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return False  # its server's number is another process here
    return not _is_server(found.server)


def _is_server(pid: int) -> bool:
    """Returns whether a server runs as this process; one that has ended may still be listed."""
    with contextlib.suppress(OSError):
        named, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
        return named.endswith(f"({SERVER_NAME}") and rest[0] not in "ZX"
    return False


def _processes() -> Iterator[VmProcess]:
    """Yields the processes of TPU VMs that this user may see."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            uid, server = _marked(pid)
            folder = _named(Path(f"/proc/{pid}/environ").read_bytes())
            if uid or folder:
                yield VmProcess(pid, folder, uid, server)


def _marked(pid: int) -> tuple[str, int]:
    """Returns the uid and the server that a process's limit names; empty and 0 for none."""
    _, limit = resource.prlimit(pid, _LIMIT)
    if limit < 0 or limit >> (_UID_BITS + _PID_BITS) != _MAGIC:
        return "", 0
    return f"{limit & (1 << _UID_BITS) - 1:08x}", limit >> _UID_BITS & (1 << _PID_BITS) - 1


def _named(environment: bytes) -> Path | None:
    mark = f"{TPU_VM_VARIABLE}=".encode()
    names = (each for each in environment.split(b"\0") if each.startswith(mark))
    return next((Path(os.fsdecode(each.removeprefix(mark))) for each in names), None)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
