"""Waits until jobs end, until a time limit, or until Ctrl-C, and never loses a Ctrl-C."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Self

from t5x_harness.vertex.emulated import emulation_has_ended, uses_emulated_google
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.submitted import ENDED, JobOutcome, SubmittedJob


class Interrupts:
    """Ensures that no interrupt is lost from :meth:`begin` to :meth:`end`.

    Python raises ``KeyboardInterrupt`` between any two steps of the main thread. If that happens in a destructor, such
    as the one in which gRPC closes a channel, or in a callback of native code, the exception is printed and dropped,
    and the program continues. So an interrupt is also recorded, and :meth:`raise_pending` raises it again until
    :meth:`forget` marks it as handled.

    Outside the main thread, or if interrupts are ignored, this does nothing.
    """

    def __init__(self) -> None:
        self._usual: Callable[[int, FrameType | None], object] | None = None
        self._noted = False
        self._held = False

    def begin(self) -> None:
        """Starts recording interrupts. May be called again."""
        usual = signal.getsignal(signal.SIGINT)
        if self._usual is None and callable(usual) and threading.current_thread() is threading.main_thread():
            self._usual = usual
            signal.signal(signal.SIGINT, self._arrived)

    def end(self) -> None:
        """Restores the handling of interrupts. May be called again."""
        usual, self._usual = self._usual, None
        # A debugger may have replaced this handler with its own, which is kept.
        if usual is not None and signal.getsignal(signal.SIGINT) == self._arrived:
            signal.signal(signal.SIGINT, usual)

    def raise_pending(self) -> None:
        """Raises an interrupt that was dropped; should be called regularly.

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
        """Delays an interrupt that arrives during a block until the end of the block.

        Thus the answer to a request is not lost, and neither is the name of the job that the request started.

        Raises:
          KeyboardInterrupt: an interrupt is pending before the block or at its end; see :meth:`raise_pending`.
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


_LONGEST_DISTURBANCE = 600.0
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.1, 10.0, 1.5


class WaitError(Exception):
    """A job did not end in time, and continues. The message names its state and says what can be done."""


class Patience:
    """The pauses between two looks: brief while something happens, then longer and longer.

    Args:
      longest: the longest pause, in seconds.
      first: the pause after something happened, in seconds.
      check: called before each pause; it may raise an exception to end the wait.
    """

    def __init__(
        self, longest: float = _LONGEST_PAUSE, first: float = _FIRST_PAUSE, check: Callable[[], None] | None = None
    ) -> None:
        self._longest = longest
        self._first = first
        self._check = check
        self._pause = first

    @classmethod
    def usual(cls, check: Callable[[], None] | None = None) -> Self:
        """Returns the patience for the Vertex AI that this process uses; Google's has quotas for requests."""
        is_private = uses_emulated_google()
        return cls(longest=0.25, check=check) if is_private else cls(first=2.0, check=check)

    def renew(self) -> None:
        """Shortens the next pause, because something happened."""
        self._pause = self._first

    def wait(self, most: float) -> None:
        """Pauses for at most ``most`` seconds."""
        if self._check is not None:
            self._check()
        time.sleep(max(0.0, min(self._pause, most)))
        self._pause = min(self._pause * _GROWTH, self._longest)


def wait_for(
    job: SubmittedJob,
    *,
    seconds: float | None = None,
    on_state: Callable[[str], None] | None = None,
    on_look: Callable[[], bool] | None = None,
    patience: Patience | None = None,
) -> JobOutcome:
    """Waits until a job has ended, even if the service or the network fails in between.

    Args:
      job: the job.
      seconds: the maximum time to wait; by default unlimited, as the job's own timeout limits it.
      on_state: called with each new state.
      on_look: called at each look, including the one after the end; returns whether it found something new.
      patience: the pauses between two looks.

    Raises:
      WaitError: the time limit was reached. The job continues.
      VertexError: the job's state cannot be read at all, or not for ten minutes.
    """
    patience = patience or Patience.usual()
    deadline = time.monotonic() + seconds if seconds is not None else float("inf")
    seen = ""
    while True:
        outcome = _look(job, patience)
        if outcome.state != seen:
            seen = outcome.state
            patience.renew()
            if on_state is not None:
                on_state(seen)
        if on_look is not None and on_look():
            patience.renew()
        if seen in ENDED:
            return outcome
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitError(
                f"{job.name} is {outcome} after {seconds:g} s. It goes on until its own timeout: look at {job.page}, "
                "wait again, or cancel it"
            )
        patience.wait(left)


def _look(job: SubmittedJob, patience: Patience) -> JobOutcome:
    """Reads the state of a job; tries again if the service fails temporarily, but not forever."""
    until = time.monotonic() + _LONGEST_DISTURBANCE
    while True:
        try:
            return job.look()
        except VertexError as error:
            if emulation_has_ended():
                raise VertexError(
                    f"the emulated Google Cloud was killed (out of memory?), and with it {job.name}"
                ) from None
            if not error.passing or time.monotonic() > until:
                raise
        patience.wait(_LONGEST_PAUSE)
