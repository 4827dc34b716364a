"""Ctrl-C during runs: the program ends within seconds, however often it is pressed, and reports its results so far."""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_SECONDS = 2.0
"""The seconds from the first Ctrl-C to a forced exit, if there is a second Ctrl-C."""

_TELL_SECONDS = 10.0
"""The seconds to wait for a report that is being printed, because its reader may have stopped."""


class Ending:
    """Handles SIGINT in a program that must report before it ends.

    The first one raises ``KeyboardInterrupt`` as usual. A second one would be raised during the cleanup, and lose the
    report. Instead, it makes the process exit two seconds after the first one, after the results so far are reported.
    All other processes notice the end, and also end.

    In any thread but the main one, or if SIGINT is ignored or has another handler, nothing changes.

    Args:
      status: the exit status of a process that is ended this way.
      tell: a function that reports the results so far; called once, by :meth:`tell` or in a thread before the process
        exits.
    """

    def __init__(self, status: int, tell: Callable[[], None]) -> None:
        self._status = status
        self._tell: Callable[[], None] | None = tell
        self._telling = threading.Lock()
        self._began: float | None = None
        self._is_installed = False
        self._is_over = False
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Makes the first SIGINT within the block begin the end."""
        before = self._is_installed
        self._install()
        try:
            yield
        finally:
            if not before and self._began is None:
                self._uninstall()

    def begin(self) -> None:
        """Begins the end of an interrupted program, which further SIGINTs do not interrupt. May be called again."""
        if self._began is None:
            self._began = time.monotonic()
        self._install()

    def tell(self) -> None:
        """Reports the results so far, unless they have been reported."""
        with self._telling:
            tell, self._tell = self._tell, None
            if tell is not None:
                tell()

    def restore(self) -> None:
        """Restores the handling of SIGINT. May be called again.

        If the end has begun, SIGINT is handled as before when its two seconds are over. An interpreter that exits
        earlier ignores it, because the rest is not worth an interruption.
        """
        if self._timer is not None:
            self._timer.cancel()
        if self._began is not None and not self._is_over:
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        elif self._began is None:
            self._uninstall()
        self._is_over = True

    def _uninstall(self) -> None:
        if self._is_installed and signal.getsignal(signal.SIGINT) == self._arrived:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._is_installed = False

    def _install(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and not self._is_installed and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._arrived)
            self._is_installed = True

    def _arrived(self, _number: int, _frame: FrameType | None) -> None:
        if self._began is None:
            self._began = time.monotonic()
            raise KeyboardInterrupt
        left = self._began + _SECONDS - time.monotonic()
        if self._is_over:
            if left < 0:
                self._uninstall()
                raise KeyboardInterrupt
        elif self._timer is None:
            self._timer = threading.Timer(max(0.0, left), self._exit)
            self._timer.daemon = True
            self._timer.start()

    def _exit(self) -> NoReturn:
        telling = threading.Thread(target=self.tell, daemon=True)
        telling.start()
        telling.join(_TELL_SECONDS)
        with contextlib.suppress(OSError):
            os.write(2, b"\nt5x-harness: interrupted again; ended without clearing up\n")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(self._status)
