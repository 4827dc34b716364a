"""Where auxiliary jobs run, as their controller sees it."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from t5x_harness.auxiliary.jobs import AuxiliaryJob


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """What has become of a job.

    Attributes:
      running: whether it has not ended.
      succeeded: whether it did all that it was to do.
      killed: whether it was ended from outside and has no result, so that it is to be started again.
      message: why it did not succeed.
    """

    running: bool = False
    succeeded: bool = False
    killed: bool = False
    message: str = ""


class PassingError(Exception):
    """A backend is disturbed, and may well do the same in a while."""


class JobBackend(Protocol):
    """Starts jobs, which go on without their controller, and finds them again."""

    def start(self, name: str, job: AuxiliaryJob) -> str:
        """Starts a job under a name that no other one has; returns where it runs.

        Raises:
          AuxiliaryError: it cannot be started.
          PassingError: it cannot be started now.
        """

    def find(self, name: str) -> str | None:
        """Returns where the job of a name runs, or has run; None where none was started.

        Raises:
          PassingError: that cannot be known now.
        """

    def look(self, where: str) -> JobStatus:
        """Returns what has become of a job.

        Raises:
          AuxiliaryError: it cannot be seen from here.
          PassingError: it cannot be seen now.
        """
