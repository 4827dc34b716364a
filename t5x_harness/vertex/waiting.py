"""Waits for a job until it ends in any way, or until the time is over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from t5x_harness.vertex.emulated import emulation_has_ended, uses_emulated_google
from t5x_harness.vertex.errors import VertexError
from t5x_harness.vertex.outcome import ENDED, JobOutcome

if TYPE_CHECKING:
    from t5x_harness.vertex.submitted import SubmittedJob

_LONGEST_DISTURBANCE = 600.0
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.1, 10.0, 1.5


class WaitError(Exception):
    """A job did not end in time, and goes on. The message says in which state it is, and what can be done."""


class Patience:
    """How long to pause until the next look: briefly while something happens, then longer and longer.

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
    def usual(cls, check: Callable[[], None] | None = None) -> Patience:
        """Returns the patience for the Vertex AI that this process uses: Google's has quotas for requests."""
        is_private = uses_emulated_google(os.environ)
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
      seconds: how long to wait at most; by default for as long as it takes, which the job's own timeout limits.
      on_state: called with each new state.
      on_look: called at each look, also after the end; returns whether there was something new.
      patience: how long to pause between two looks.

    Raises:
      WaitError: the time is over. The job goes on.
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
            if emulation_has_ended(os.environ):
                raise VertexError(
                    f"the emulated Google Cloud was killed (out of memory?), and with it {job.name}"
                ) from None
            if not error.passing or time.monotonic() > until:
                raise
        patience.wait(_LONGEST_PAUSE)
