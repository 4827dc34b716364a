"""Functions for Linux processes that Python's library lacks: ``prctl``, the processes below one, serving a descriptor.

Only the standard library is used, because commands import this before they begin.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

# Asks a process of a run or of a pod for its stacks. A real-time signal, because programs use SIGUSR1 and SIGUSR2.
STACK_SIGNAL = signal.SIGRTMAX - 2

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, argument: int | bytes) -> None:
    import ctypes

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

    This is only for parents with a single thread, because the kernel watches the thread, not the process.

    Args:
      parent: the pid of the parent; if it is already gone, this process ends at once.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def interrupt_with_parent() -> None:
    """Makes the kernel send this process SIGINT, as Ctrl-C does, when its parent's forking thread ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def reset_signals() -> None:
    """Resets every signal to the disposition of a new Python process, and unblocks all signals."""
    signal.set_wakeup_fd(-1)
    ignored_by_python = {signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        wanted = signal.SIG_IGN if number in ignored_by_python else signal.SIG_DFL
        if signal.getsignal(number) is not wanted:
            signal.signal(number, wanted)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def handle_interrupts() -> None:
    """Makes SIGINT raise KeyboardInterrupt if it is ignored only because a shell started this process with ``&``.

    It remains ignored under nohup, which also ignores SIGHUP, and in any thread but the main one.
    """
    ignored = [signal.getsignal(number) is signal.SIG_IGN for number in (signal.SIGINT, signal.SIGHUP)]
    if ignored == [True, False] and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def flush_c_streams() -> None:
    """Flushes the C library's buffers, which native code writes to."""
    import ctypes

    ctypes.CDLL(None).fflush(None)


def kill_quietly(pid: int, number: int) -> None:
    """Sends a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def ask_for_stacks(pid: int) -> None:
    """Makes a process write the stacks of its threads, if it is prepared for that; others would die of the signal."""
    with contextlib.suppress(OSError, StopIteration):  # it has ended
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
        if caught >> (STACK_SIGNAL - 1) & 1:
            os.kill(pid, STACK_SIGNAL)


def ticks(pid: int) -> int:
    """Returns the time for which a process has used a core, in the kernel's ticks; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])  # utime and stime


def own_seconds() -> float:
    """Returns how many seconds ago this process began."""
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> list[int]:
    """Returns the pids of all processes below ``root``, nearest first, zombies included."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended in the meantime
            # The name, in parentheses, may contain anything; the state and the parent's pid follow it.
            fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def kill_below(spared: Iterable[int] = ()) -> None:
    """Kills all processes below this one, except the spared children and what is below them."""
    below = descendants(os.getpid())  # before those that are spared, which may just be starting others
    kept = {pid for child in spared for pid in (child, *descendants(child))}
    for pid in below:
        if pid not in kept:
            kill_quietly(pid, signal.SIGKILL)


def clear_below(seconds: float = math.inf) -> None:
    """Kills and reaps all processes below this one, which adopts orphans, even if they fork and detach.

    Args:
      seconds: how long to wait. A killed process is gone in milliseconds unless the kernel itself is stuck, such as by
        a dead network disk.
    """
    deadline, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() <= deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # none is left
            return
        kill_below()
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def watch_children() -> tuple[int, int]:
    """Makes a pipe that is readable once a child's state has changed; returns both ends, which forks have to close."""
    awake, waker = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    return awake, waker


@contextlib.contextmanager
def side_process(name: str, serve: Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    """Forks a process that waits for a descriptor and serves it; the calling process must have a single thread.

    The new process is detached from this one and from terminals, remains outside the namespaces that this process
    enters in the block, keeps none of its descriptors but stderr, and ends at once if it gets no descriptor.

    Args:
      name: the name of the new process, at most 15 bytes.
      serve: a function that is called there with the descriptor; the process ends when it returns.

    Yields:
      A function that hands over the descriptor, and returns once it is being served.
    """
    import socket

    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        mine.close()
        _detach_and_serve(theirs, name, serve)
    theirs.close()
    os.waitpid(child, 0)
    with mine:
        yield functools.partial(_hand_over, mine)


def _hand_over(connection: socket.socket, descriptor: int) -> None:
    import socket

    socket.send_fds(connection, [b"d"], [descriptor])
    os.close(descriptor)
    connection.recv(1)


def _detach_and_serve(connection: socket.socket, name: str, serve: Callable[[int], None]) -> None:
    """Detaches from the terminal and serves; never returns."""
    import socket

    try:
        os.setsid()
        if os.fork() == 0:
            _keep_only(connection)
            os.chdir("/")
            Path("/proc/self/comm").write_text(name)
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            if descriptors:
                connection.send(b"r")
                connection.close()
                serve(descriptors[0])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _keep_only(connection: socket.socket) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != connection.fileno():
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))
