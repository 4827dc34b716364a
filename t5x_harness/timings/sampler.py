"""Looks at a thread's stack a hundred times a second, and adds up what it is seen doing.

The sum is the wall time, whatever the thread does: nothing has to be wrapped, and the user's own code shows like any
other. Time in which the thread could run but no core was free is read from the kernel, and counted by itself.
"""

import concurrent.futures.thread
import contextlib
import os
import queue
import selectors
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import FrameType
from typing import Self

from t5x_harness.upstream.cpython import frames_of_threads

WAITING = "waiting for a core"
SAMPLING = "t5x-harness-timings"
"""The name of the thread that looks at the other one."""

_PERIOD_SECONDS = 0.01
_WAITING_FILES = frozenset(module.__file__ for module in (threading, queue, selectors, concurrent.futures.thread))
"""The files of the functions in which idle threads are."""


class Sampler:
    """Watches the thread that enters it until it leaves; a context manager.

    Args:
      kind_of: a function that names what a stack does, from its innermost frame.

    Attributes:
      seconds: the seconds by kind, complete once the block is over.
    """

    def __init__(self, kind_of: Callable[[FrameType], str]) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._kind_of = kind_of
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._watched = threading.get_ident()
        self._waits = open(f"/proc/self/task/{threading.get_native_id()}/schedstat", "rb", buffering=0)
        self._then, self._waited = time.perf_counter(), self._wait()
        self._thread = threading.Thread(target=self._watch, name=SAMPLING, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._waits.close()

    def rounded(self) -> dict[str, float]:
        """Returns the seconds by kind in milliseconds' precision, most first, without what took less."""
        ordered = sorted(self.seconds.items(), key=lambda item: -item[1])
        return {kind: shown for kind, seconds in ordered if (shown := round(seconds, 3))}

    def _watch(self) -> None:
        kind = ""
        while not self._over.wait(_PERIOD_SECONDS):
            kind = self._kind_of(self._busy_frame())
            self._count(kind)
        self._count(kind)

    def _busy_frame(self) -> FrameType:
        """Returns where the watched thread is; if that is waiting for another thread, where that one is."""
        frames = frames_of_threads()
        watched = frames.pop(self._watched)
        del frames[threading.get_ident()]
        if watched.f_code.co_filename != threading.__file__:
            return watched
        return next((each for each in frames.values() if each.f_code.co_filename not in _WAITING_FILES), watched)

    def _count(self, kind: str) -> None:
        now, waited = time.perf_counter(), self._wait()
        passed, wait = now - self._then, waited - self._waited
        wait = min(wait, passed)
        self._then, self._waited = now, waited
        self.seconds[WAITING] += wait
        self.seconds[kind] += passed - wait

    def _wait(self) -> float:
        """Returns the seconds that the thread has waited for a core since its start; 0 if the kernel does not count."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(os.pread(self._waits.fileno(), 128, 0).split()[1]) / 1e9
        return 0.0
