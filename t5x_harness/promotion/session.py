"""What a session that promotes tests has beside them: its jobs, and the emulated Vertex AI if they run there."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from t5x_harness.promotion.settings import PromotionSettings

if TYPE_CHECKING:
    from t5x_harness.promotion.jobs import PromotedJobs
    from t5x_harness.vertex.machine import Machine

__all__ = ["EmulationError", "PromotionSession"]


class EmulationError(Exception):
    """The emulated Vertex AI cannot start; the message says why."""


class PromotionSession:
    """Starts what is asked for, and ends it.

    Attributes:
      shown: jobs that are only printed.
      left: what became of jobs that had not ended with the session.
    """

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.left: list[str] = []
        self._jobs: PromotedJobs | None = None
        self._emulated = contextlib.ExitStack()
        self._importing: threading.Thread | None = None

    def jobs(self, settings: PromotionSettings, say: Callable[[str], None] | None) -> PromotedJobs:
        """Returns the session's jobs.

        Args:
          settings: how promoted tests run.
          say: takes each line of the jobs' logs; None for nobody.
        """
        if self._jobs is None:
            from t5x_harness.promotion.jobs import PromotedJobs

            if self._importing is not None:
                self._importing.join()
            self._jobs = PromotedJobs(settings, self.shown.append, say)
        return self._jobs

    def emulate(self, source: str | None, image: str, machines: Sequence[Machine]) -> None:
        """Has this process's Google clients use an emulated Vertex AI until :meth:`end`.

        Args:
          source: a folder with a folder for each bucket; None for no buckets.
          image: where T5X is.
          machines: what the jobs that run T5X will run on; those on the first one's machine are prepared for.

        Raises:
          EmulationError: it cannot start.
        """
        from t5x_harness.google.session import ServerError
        from t5x_harness.google.vertex.settings import ExpectedJobs
        from t5x_harness.vertex.emulated import private_google

        if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.aiplatform") is None:
            raise EmulationError(
                "Google's SDK is not installed here: python -m pip install 't5x-harness[google,vertex]'"
            )
        expected = None
        if machines:
            # Its message would take Google's library, which is not waited for here.
            machine = {name: value for name, value in dataclasses.asdict(machines[0]).items() if value}
            expected = ExpectedJobs(image, machine, machines.count(machines[0]))
        try:
            self._emulated.enter_context(private_google(source=source, warm=True, expected=expected))
        except ServerError as error:
            raise EmulationError(str(error)) from None
        # While the first run resolves, this process has nothing else to do.
        self._importing = threading.Thread(target=_import_sdk, name="t5x-harness-sdk", daemon=True)
        self._importing.start()

    def raise_pending_interrupt(self, raised: BaseException | None) -> None:
        """Ends the session if Ctrl-C was to end it and came to nothing, while there may be jobs.

        Args:
          raised: what a phase of a test raised; a Ctrl-C that a debugger was entered for is over.

        Raises:
          KeyboardInterrupt: it was dropped.
        """
        if self._jobs is not None:
            self._jobs.raise_pending_interrupt(raised)

    def close(self) -> None:
        """Cancels the jobs that have not ended; what became of them is kept for the end of the report."""
        if self._jobs is not None:
            self.left += self._jobs.close()

    def end(self) -> None:
        """Ends the emulated Vertex AI; says what becomes of jobs that are there yet, as the report is over."""
        reported = len(self.left)
        self.close()
        for line in self.left[reported:]:
            print(line, file=sys.stderr)
        self._emulated.close()

    def to_json(self) -> dict[str, list[str]]:
        """Returns what another process needs to tell of this session's jobs."""
        return {"shown": self.shown, "left": self.left}

    def add_json(self, value: Mapping[str, list[str]]) -> None:
        """Adds what :meth:`to_json` returned in another process."""
        self.shown += value["shown"]
        self.left += value["left"]


def _import_sdk() -> None:
    """Imports what sends jobs, of Google's SDK; why it cannot be imported is told where it is used."""
    with contextlib.suppress(Exception):
        importlib.import_module("google.cloud.aiplatform_v1")
