"""Notices that no host of a pod does anything any more, and finds out where each of them is."""

import dataclasses
import itertools
import os
import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence

from t5x_harness.system.processes import descendants, ticks
from t5x_harness.workers.run import ENTRY_FILE, ForkedRun

IDLE_SECONDS = 7.0
"""How long no host may use a core before the pod counts as stuck."""

_SHARE = 0.04
"""The share of a core that JAX's own threads use at most, on a host that waits."""

_TICKS = os.sysconf("SC_CLK_TCK")

_ENDS_BY_ITSELF = (
    *("/google/api_core/", "/google/cloud/storage/", "/google/resumable_media/", "/urllib3/", "/file_io.py"),
    "in read_or_compile",
)
"""Parts of the stacks of waits that end by themselves: for storage, and for a program that another process compiles."""

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+|\?+) in (?P<function>.+)$', re.MULTILINE)
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen", "/t5x_harness/")
_WAITS = ("multihost_utils.py", "/jax/", "/jaxlib/", "/orbax/")
_INNERMOST = 3


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a host is.

    Attributes:
      line: the innermost line of the user's code, or else of a library's, such as ``data.py:12 in rows``; empty if it
        is not known.
      waits: whether it waits for other hosts in a collective there.
    """

    line: str
    waits: bool


class StallWatch:
    """Observes the processes of the hosts.

    Args:
      hosts: their runs.
      seconds: how long no host may use a core before the pod counts as stuck.
    """

    def __init__(self, hosts: Sequence[ForkedRun], seconds: float = IDLE_SECONDS) -> None:
        self._hosts = hosts
        self._seconds = seconds
        self._seen: deque[tuple[float, int]] = deque()
        self._of: tuple[int, ...] = ()

    def places(self, waiting: Collection[int], now: float) -> Mapping[int, Place]:
        """Returns where each host is, if none of them has used a core for some seconds; else nothing.

        A program that a host has started works for it, storage that fails for a while is tried again, and a program
        that another process compiles comes or is compiled here: such hosts are not stuck.

        Args:
          waiting: the numbers of the hosts whose call has not ended.
          now: the time, in seconds.

        """
        of = tuple(waiting)
        if not self._are_idle(of, now) or any(descendants(self._hosts[number].pid) for number in of):
            return {}
        stacks = {number: main_thread(self._hosts[number].stacks()) for number in of}
        if any(part in stack for stack in stacks.values() for part in _ENDS_BY_ITSELF):
            return {}
        return {number: own_place(stack) for number, stack in stacks.items()}

    def _are_idle(self, of: tuple[int, ...], now: float) -> bool:
        if of != self._of:
            self._of = of
            self._seen.clear()
        self._seen.append((now, sum(ticks(self._hosts[number].pid) for number in of)))
        while len(self._seen) > 1 and now - self._seen[1][0] >= self._seconds:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since < self._seconds or self._seen[-1][1] - before > _SHARE * (now - since) * _TICKS * len(of):
            return False
        self._seen.clear()
        return True


def main_thread(stacks: str) -> str:
    """Returns the main thread's part of the stacks that :mod:`faulthandler` writes; empty if it has none."""
    starts = [match.start() for match in _THREAD.finditer(stacks)]
    parts = [stacks[start:end] for start, end in itertools.pairwise([*starts, len(stacks)])]
    return next((part for part in parts if f'{ENTRY_FILE}"' in part), "")


def own_place(stack: str) -> Place:
    """Returns where a thread is.

    Args:
      stack: the thread's stack, as :mod:`faulthandler` writes it, innermost first; empty if it is not known.
    """
    frames = list(_FRAME.finditer(stack))
    if not frames:
        return Place("", waits=True)
    waits = any(part in frame["file"] for frame in frames[:_INNERMOST] for part in _WAITS)
    users = (frame for frame in frames if not any(part in frame["file"] for part in _LIBRARIES))
    others = (frame for frame in frames if not any(part in frame["file"] for part in _WAITS))
    own = next(users, next(others, frames[0])) if waits else next(users, frames[0])
    return Place(f"{own['file']}:{own['line']} in {own['function']}", waits)
