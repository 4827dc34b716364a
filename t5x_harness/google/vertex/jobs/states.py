"""The states of jobs."""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """The states of the API that a job can be in, by their numbers there."""

    QUEUED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLING = 6
    CANCELLED = 7
    EXPIRED = 9

    @property
    def is_final(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED)
