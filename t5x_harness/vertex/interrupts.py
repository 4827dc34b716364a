"""Ctrl-C for programs that have to cancel jobs: none is lost, and none comes between a request and its answer."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Interrupts:
    """Ensures that no interrupt is lost, from :meth:`begin` to :meth:`end`.

    Python raises ``KeyboardInterrupt`` between any two steps of the main thread. If that happens in a destructor, such
    as the one in which gRPC closes a channel, or in a callback of native code, the exception is printed and dropped,
    and the program goes on. So an interrupt is also recorded, and :meth:`raise_pending` raises it again until
    :meth:`forget` says that it was handled.

    Outside the main thread, and if interrupts are ignored, nothing changes.
    """

    def __init__(self) -> None:
        self._usual: Callable[[int, FrameType | None], object] | None = None
        self._noted = False
        self._held = False

    def begin(self) -> None:
        """Records interrupts from now on. May be called again."""
        usual = signal.getsignal(signal.SIGINT)
        if self._usual is None and callable(usual) and threading.current_thread() is threading.main_thread():
            self._usual = usual
            signal.signal(signal.SIGINT, self._arrived)

    def end(self) -> None:
        """Restores the handling of interrupts. May be called again."""
        usual, self._usual = self._usual, None
        # A debugger may have replaced this handler by its own, which stays.
        if usual is not None and signal.getsignal(signal.SIGINT) == self._arrived:
            signal.signal(signal.SIGINT, usual)

    def raise_pending(self) -> None:
        """Raises an interrupt that was dropped; to be called regularly.

        Raises:
          KeyboardInterrupt: an interrupt is pending. An earlier handler of interrupts may raise another exception.
        """
        if self._noted:
            self._deliver(None)

    def forget(self) -> None:
        """Forgets the recorded interrupt, if any, because it was handled."""
        self._noted = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delays an interrupt that arrives in a block until the end of the block.

        So the answer to a request that was sent is not lost, and with it the name of a job that was started.

        Raises:
          KeyboardInterrupt: before the block, or at its end, as :meth:`raise_pending` does.
        """
        self.raise_pending()
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self.raise_pending()

    def _arrived(self, _number: int, frame: FrameType | None) -> None:
        self._noted = True
        if not self._held:
            self._deliver(frame)

    def _deliver(self, frame: FrameType | None) -> None:
        if self._usual is not None:
            self._usual(signal.SIGINT, frame)
        self.forget()  # a handler that raises nothing has handled it
