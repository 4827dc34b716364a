"""The states in which a job ends, and how one ended."""

from __future__ import annotations

import dataclasses

ENDED = frozenset(
    {
        "JOB_STATE_SUCCEEDED",
        "JOB_STATE_FAILED",
        "JOB_STATE_CANCELLED",
        "JOB_STATE_EXPIRED",
        "JOB_STATE_PARTIALLY_SUCCEEDED",
    }
)
"""The names of the final states. A paused job may go on."""


@dataclasses.dataclass(frozen=True)
class JobOutcome:
    """How a job ended.

    Attributes:
      state: its state, such as ``JOB_STATE_SUCCEEDED``.
      error: the service's error message, if there is one.
    """

    state: str
    error: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it completed."""
        return self.state == "JOB_STATE_SUCCEEDED"

    def __str__(self) -> str:
        name = self.state.removeprefix("JOB_STATE_").lower().replace("_", " ")
        return f"{name}: {self.error}" if self.error else name
