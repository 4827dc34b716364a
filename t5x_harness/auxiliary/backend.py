"""Where auxiliary jobs run, as their controller sees it."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from t5x_harness.auxiliary.jobs import AuxiliaryJob


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """How a job stands.

    Attributes:
      running: whether it has not ended.
      succeeded: whether it did all of its work.
      killed: whether it was ended from outside and has no result, so that it has to be started again.
      message: why it did not succeed.
    """

    running: bool = False
    succeeded: bool = False
    killed: bool = False
    message: str = ""


class PassingError(Exception):
    """A backend cannot do something now, but may be able to soon."""


class JobBackend(Protocol):
    """Starts jobs, which continue without their controller, and finds them again."""

    def start(self, name: str, job: AuxiliaryJob) -> str:
        """Starts a job under a name that no other job has, and returns where it runs.

        Raises:
          AuxiliaryError: it cannot be started.
          PassingError: it cannot be started now.
        """

    def find(self, name: str) -> str | None:
        """Returns where the job with a name runs or has run; None if there is no such job.

        Raises:
          PassingError: that cannot be known now.
        """

    def status(self, where: str) -> JobStatus:
        """Looks up how a job stands.

        Raises:
          AuxiliaryError: it cannot be seen from here.
          PassingError: it cannot be seen now.
        """
