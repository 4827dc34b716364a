"""Describes the end of a process: its status in words, the end of its log, and the position of its threads."""

import contextlib
import os
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

TAIL_LINES = 40
TAIL_BYTES = 64 * 1024
LONGEST_LINE = 1000

_NO_PROCESS = ("Resource temporarily unavailable", "can't start new thread", "pthread_create", "BlockingIOError")
_CRASH = re.compile(r'^Fatal Python error: .*?^Current thread [^\n]*\n  (File "[^\n]+)', re.DOTALL | re.MULTILINE)
_OF_NATIVE_CODE = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
# A run has up to 300 threads, and several may work at once.
_LOW = 2048


def describe_status(status: int) -> str:
    """Describes how a process ended.

    Args:
      status: a wait status, as :func:`os.waitpid` returns it.

    Returns:
      A description such as ``exited with status 3`` or ``was killed by SIGKILL (out of memory?)``.
    """
    if not os.WIFSIGNALED(status):
        return f"exited with status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    usual_causes = {
        signal.SIGKILL: "out of memory?",
        signal.SIGSEGV: "segfault",
        signal.SIGABRT: "abort, often a failed check in native code",
        signal.SIGBUS: "bus error, often a full disk or shared memory",
        signal.SIGILL: "illegal instruction, often code compiled for another CPU",
        signal.SIGFPE: "arithmetic error in native code",
    }
    cause = usual_causes.get(number)  # type: ignore[call-overload]
    return f"was killed by {signal_name(number)}" + (f" ({cause})" if cause else "")


def describe_returncode(returncode: int) -> str:
    """Describes a return code of :mod:`subprocess`, in which a signal is a negative number."""
    return describe_status(-returncode if returncode < 0 else returncode << 8)


def low_limit(log: str, *, status: int = 0) -> str:
    """Returns a hint at a limit on processes or address space that may have ended a process; empty if there is none.

    Args:
      log: the end of its log.
      status: its wait status, if known. Native code aborts if it gets no thread, and may write nothing.
    """
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY and os.WIFSIGNALED(status) and os.WTERMSIG(status) in _OF_NATIVE_CODE:
        size = f"{address_space / 1024**3:.1f} GiB"
        return f"; it may have wanted more than the {size} of address space that ulimit -v leaves"
    limits = dict(_process_limits())
    if not limits:
        return ""
    name, number = min(limits.items(), key=lambda item: item[1])
    has_aborted = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGABRT
    if not (has_aborted and number < _LOW) and not any(text in log for text in _NO_PROCESS):
        return ""
    return f"; it may have wanted more processes and threads than the {number} of {name}"


def _process_limits() -> Iterator[tuple[str, int]]:
    """Yields the limits of processes and threads, and their sources."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        yield "this user (ulimit -u)", soft
    with contextlib.suppress(OSError, ValueError):  # no limit, or "max"
        yield "this container (pids.max of its cgroup)", int(Path("/sys/fs/cgroup/pids.max").read_text())


def signal_name(number: int) -> str:
    """Returns the name of a signal, such as ``SIGSTOP``; real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_tail(path: Path, *, start: int = 0, lines: int = TAIL_LINES) -> str:
    """Reads the end of a log that may be huge, still growing, binary or gone.

    Args:
      path: the log file.
      start: the byte offset to start at, after the output of an earlier run.
      lines: the most lines to return; each is cut to 1000 characters.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            first = max(start, size - TAIL_BYTES)
            file.seek(first)
            text = file.read(TAIL_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        return f"(the log cannot be read: {error})"
    found = text.splitlines()
    if first > start and len(found) > 1:
        found = found[1:]  # the first line is probably cut
    return "\n".join(line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + " …" for line in found[-lines:])


def without_frames(dump: str, *, entry_file: str) -> str:
    """Removes from a faulthandler dump the frames that lead a thread into the user's code.

    Args:
      dump: the output of :mod:`faulthandler`, which has for each thread a header and a line ``File "…", line n in f``
        for every frame, innermost first.
      entry_file: the end of a path; the first frame in that file and all outer frames are removed.
    """
    kept: list[str] = []
    inside = False
    for line in dump.splitlines():
        is_frame = line.startswith('  File "')
        inside = is_frame and (inside or f'{entry_file}"' in line)
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def crashed_at(log: str) -> str:
    """Returns the Python frame, such as ``File "model.py", line 3 in loss``, in which a process crashed.

    Args:
      log: the end of its log, with the output of :mod:`faulthandler` at a fatal signal.

    Returns:
      The frame, or an empty string if the log has no such crash.
    """
    found = _CRASH.search(log)
    return found[1] if found else ""


def innermost_frame(dump: str, *, entry_file: str) -> str:
    """Returns the innermost frame of the main thread, such as ``File "model.py", line 3 in loss``.

    Args:
      dump: the output of :mod:`faulthandler`.
      entry_file: the end of the path of a file that only the main thread runs through.

    Returns:
      The frame, or an empty string if no thread has a frame inside that file's frame.
    """
    innermost = ""
    for line in dump.splitlines():
        if not line.startswith('  File "'):
            innermost = ""
        elif f'{entry_file}"' in line:
            return innermost
        else:
            innermost = innermost or line.strip()
    return ""
