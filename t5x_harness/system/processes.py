"""Functions for Linux processes that Python's library lacks: ``prctl``, and the descendants of a process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from pathlib import Path

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, argument: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    value = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if libc.prctl(option, value, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def name_process(name: str) -> None:
    """Sets the name that ``ps`` and ``top`` show for this process; the kernel keeps 15 bytes."""
    _prctl(PR_SET_NAME, name.encode()[:15])


def adopt_orphans() -> None:
    """Makes this process, not process 1, adopt its orphaned descendants."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when its parent's forking thread ends.

    Only for parents with a single thread, because the kernel watches the thread, not the process.

    Args:
      parent: the pid of the parent; if it is gone already, this process ends at once.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def interrupt_with_parent() -> None:
    """Makes the kernel send this process SIGINT, as Ctrl-C does, when its parent's forking thread ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def reset_signals() -> None:
    """Gives every signal the disposition of a new Python process, and unblocks all."""
    signal.set_wakeup_fd(-1)
    ignored_by_python = {signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        wanted = signal.SIG_IGN if number in ignored_by_python else signal.SIG_DFL
        if signal.getsignal(number) is not wanted:
            signal.signal(number, wanted)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def handle_interrupts() -> None:
    """Makes SIGINT raise KeyboardInterrupt if only a script's shell ignored it, which started this with ``&``.

    It stays ignored under nohup, which ignores SIGHUP, too, and in any thread but the main one.
    """
    ignored = [signal.getsignal(number) is signal.SIG_IGN for number in (signal.SIGINT, signal.SIGHUP)]
    if ignored == [True, False] and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def flush_c_streams() -> None:
    """Flushes the C library's buffers, which native code writes to."""
    ctypes.CDLL(None).fflush(None)


def kill_quietly(pid: int, number: int) -> None:
    """Sends a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def descendants(root: int) -> list[int]:
    """Returns the pids of all processes below ``root``, nearest first, zombies included."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The name, in parentheses, may hold anything; the state and the parent's pid follow it.
            fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found
