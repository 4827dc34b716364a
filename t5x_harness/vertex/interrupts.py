"""Ctrl-C for programs that have jobs to cancel then: none is lost, and none comes between a request and its answer."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Interrupts:
    """Sees to it that no interrupt is lost, from :meth:`begin` to :meth:`end`.

    Python raises ``KeyboardInterrupt`` between any two steps of the main thread. Where that is in a destructor, as the
    one in which gRPC closes a channel that the SDK is done with, or in a callback of native code, the exception is
    printed and dropped, and the program goes on. So an interrupt is also noted, and raised again by
    :meth:`raise_pending` until :meth:`forget` says that it was acted upon.

    Outside the main thread, and where interrupts are ignored, nothing changes.
    """

    def __init__(self) -> None:
        self._usual: Callable[[int, FrameType | None], object] | None = None
        self._noted = False
        self._held = False

    def begin(self) -> None:
        """Notes interrupts from now on. May be called again."""
        usual = signal.getsignal(signal.SIGINT)
        if self._usual is None and callable(usual) and threading.current_thread() is threading.main_thread():
            self._usual = usual
            signal.signal(signal.SIGINT, self._arrived)

    def end(self) -> None:
        """Has interrupts handled as before. May be called again."""
        usual, self._usual = self._usual, None
        # A debugger, for one, may have put a handler of its own in this one's place, and keeps it.
        if usual is not None and signal.getsignal(signal.SIGINT) == self._arrived:
            signal.signal(signal.SIGINT, usual)

    def raise_pending(self) -> None:
        """Raises an interrupt that came to nothing; is to be called now and then.

        Raises:
          KeyboardInterrupt: or what the handler of interrupts that was there raises.
        """
        if self._noted:
            self._tell(None)

    def forget(self) -> None:
        """Forgets the interrupt that is noted, if any: it was acted upon, and the next one is another one."""
        self._noted = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lets a block come to its end before an interrupt that arrives in it is raised.

        A request that was sent is answered, so that nobody forgets what it has started.

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

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self._noted = True
        if not self._held:
            self._tell(frame)

    def _tell(self, frame: FrameType | None) -> None:
        if self._usual is not None:
            self._usual(signal.SIGINT, frame)
        self.forget()  # a handler that raises nothing has acted upon it
