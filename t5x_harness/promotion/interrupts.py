"""Ctrl-C at a moment when it can be told what has to be cancelled."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

__all__ = ["interrupts_held"]


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Lets a block come to its end before an interrupt that arrives in it is heard.

    A request that was sent is answered, so that nobody forgets what it has started. Outside the main thread, and where
    interrupts are ignored, nothing changes.

    Raises:
      KeyboardInterrupt: at the block's end, or what the handler of interrupts that was there raises.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if heard:
            usual(signal.SIGINT, None)
