"""Errors of a run in another process: one class for each situation, each with the end of the log."""

from collections.abc import Mapping
from typing import Any


class WorkerError(Exception):
    """A run, or the process that starts runs, failed.

    Attributes:
      log_tail: the last lines of the log, at most 40; empty if nothing was written.
      fix: the remedy; empty if only the log may show one.
      code: the code of the mistake; empty if the error does not know it.
    """

    code = ""

    def __init__(self, message: str, *, log_tail: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.fix = fix
        if log_tail:
            # A note is shown with every traceback, and str(error) remains one line for tables.
            self.add_note(f"Last lines of its log:\n{log_tail}")


class RunRaised(WorkerError):
    """The called method, or the factory, raised an exception. The child continues.

    Attributes:
      type_name: the name of the exception's type, with its module unless it is a builtin.
      message: the exception's ``str``.
      traceback: the child's traceback as text, without the frames of the harness.
      at: file and line of an exception that ends programs; None for any other.
      method: the method that raised it; for the factory, the factory's name with its module.
    """

    def __init__(self, reply: Mapping[str, Any], *, log_tail: str = "") -> None:
        """Describes the exception.

        Args:
          reply: the child's reply, as :func:`t5x_harness.workers.run_process.describe` makes it.
          log_tail: the last lines of the log.
        """
        self.method, self.type_name, self.traceback = reply["raised"], reply["type"], reply["traceback"]
        self.message = reply["message"] or self.type_name
        self.at = (str(reply["at"][0]), int(reply["at"][1])) if "at" in reply else None
        name = self.method if ":" in self.method else f"{self.method}()"
        text = f"{name} raised {self.type_name}" + (f": {reply['message']}" if reply["message"] else "")
        if self.at is not None:
            text = f"{name} ended: {self.message} ({self.at[0]}:{self.at[1]})"
        super().__init__(text, log_tail=log_tail)
        if self.traceback:
            self.add_note(f"Traceback in the run's process:\n{self.traceback}")


class RunDied(WorkerError):
    """The child ended, or had to be killed, before it replied."""


class RunCutOff(RunDied):
    """A process that the run depends on has ended, so the child was killed."""


class RunTimedOut(WorkerError):
    """The call took longer than its limit, and the child was killed.

    Attributes:
      stack: the Python stacks of the child's threads just before it was killed; empty if it wrote none.
    """

    def __init__(self, message: str, *, stack: str = "", log_tail: str = "") -> None:
        super().__init__(message, log_tail=log_tail)
        self.stack = stack


class ZygoteFailed(WorkerError):
    """The process that starts runs could not be started, so no run can start.

    Attributes:
      module: the preloaded module at fault; None if no module is.
    """

    def __init__(self, message: str, *, module: str | None = None, log_tail: str = "", fix: str = "") -> None:
        super().__init__(message, log_tail=log_tail, fix=fix)
        self.module = module
