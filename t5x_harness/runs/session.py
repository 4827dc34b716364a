"""The runs of a session that asks for them stage by stage, such as pytest's: how they begin, and how they end."""

from __future__ import annotations

import abc
import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.settings.configuration import Configuration
from t5x_harness.settings.session import SessionSettings

if TYPE_CHECKING:
    from t5x_harness.report import Report
    from t5x_harness.runs.shared import SharedRuns
    from t5x_harness.system.ending import Ending
    from t5x_harness.workers import InlineProgress


class RunSession(SessionSettings, abc.ABC):
    """Owns everything that outlives a run.

    Args:
      configuration: what is set for the runs.
      expects_runs: whether the session is going to make runs.
      promotes: whether they are jobs elsewhere, which handle Ctrl-C.
      debugs: whether a debugger is to handle it.
      is_worker: whether the session is a part of one in another process, with which it is interrupted.

    Attributes:
      expects_runs: as above, as are ``promotes`` and ``is_worker``.
    """

    def __init__(
        self, configuration: Configuration, *, expects_runs: bool, promotes: bool, debugs: bool, is_worker: bool
    ) -> None:
        super().__init__(configuration)
        self.expects_runs = expects_runs
        self.promotes = promotes
        self.is_worker = is_worker
        self._leaves_interrupts = debugs or self.options.in_process or promotes
        self._started = time.perf_counter()

    @abc.abstractmethod
    def make_progress(self) -> InlineProgress:
        """Makes what shows how far a run is."""

    @abc.abstractmethod
    def make_folder(self) -> Path:
        """Makes the folder of all runs."""

    @abc.abstractmethod
    def make_ending(self) -> Ending:
        """Makes what handles Ctrl-C, and then shows the report."""

    @functools.cached_property
    def runs(self) -> SharedRuns:
        """The runs of this session."""
        from t5x_harness.runs.pool import RunPool
        from t5x_harness.runs.shared import SharedRuns

        pool = RunPool(timeout=self.options.timeout, in_process=self.options.in_process, at_once=self.runs_at_once)
        return SharedRuns(pool, self.make_folder, self.progress)

    @property
    def begun(self) -> SharedRuns | None:
        """The runs, if any was asked for."""
        found: SharedRuns | None = vars(self).get("runs")
        return found

    @functools.cached_property
    def progress(self) -> InlineProgress:
        """Shows what is worked at."""
        return self.make_progress()

    def say(self, line: str) -> None:
        """Shows a line of its own."""
        self.progress.say(line)

    @functools.cached_property
    def ending(self) -> Ending:
        """What handles Ctrl-C while runs work and once the session is to end."""
        return self.make_ending()

    @contextlib.contextmanager
    def working(self) -> Iterator[SharedRuns]:
        """Shows the progress of runs that are waited for while the block lasts, and makes Ctrl-C end them."""
        if self.is_worker:
            # pytest-xdist itself does that 5 s later. Called in the main thread before any run begins: the kernel
            # forgets it with the thread that asks for it.
            from t5x_harness.system import processes

            processes.interrupt_with_parent()
        with self.watching():
            try:
                yield self.runs
            finally:
                self.progress.clear()

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Makes Ctrl-C begin the end of the session, unless others are to handle it."""
        return contextlib.nullcontext() if self._leaves_interrupts or not self.in_use else self.ending.watching()

    @property
    def why_not_compiled(self) -> str:
        """Why nothing can be compiled for a TPU here; empty where it can."""
        from t5x_harness.aot.libtpu import why_not

        return why_not(in_process=self.options.in_process)

    @property
    def in_use(self) -> bool:
        """Whether anything works, or will."""
        return self.expects_runs or (self.begun is not None and self.begun.pool.is_used)

    @property
    def runs_at_once(self) -> int:
        """How many runs work at once: one where there are other workers, in this process, and where runs are jobs."""
        from t5x_harness.runs.background import runs_at_once

        ahead = self.options.ahead
        if ahead is None and self.configuration.settings.full_size:
            ahead = 0  # two such runs may need more memory than there is
        return 1 if self.options.in_process or self.is_worker or self.promotes else runs_at_once(ahead)

    def warm(self) -> None:
        """Starts the imports of the worker in the background."""
        if not self.options.in_process:
            self.runs.pool.warm(self.spec(()), google=not self.fake_buckets)

    def report(self) -> Report:
        """Returns the results of all runs, in the order in which they ended."""
        return self.runs.results.report(time.perf_counter() - self._started)

    def properties(self) -> list[tuple[str, str]]:
        """Returns the versions and slices of all runs, for reporters such as JUnit's; nothing where there are none."""
        from t5x_harness.report.properties import version_properties

        runs = self.begun.results.by_run if self.begun is not None else ()
        return [*version_properties(self.runtime, (spec.slice for spec in runs))] if runs else []

    def interrupt(self) -> bool:
        """Kills all runs, and keeps what is known of them; returns whether that is for the session to do."""
        if not self.in_use or self.promotes:
            return False
        self.ending.begin()  # it may have come elsewhere
        if self.begun is not None:
            self.begun.interrupt()
        return True

    def finish(self, *, interrupted: bool) -> None:
        """Ends runs whose further stages will not come any more; of interrupted ones it keeps what is known."""
        if self.begun is not None:
            if interrupted:  # in one way or another: a stage may be at work
                self.begun.interrupt()
            else:
                self.begun.finish()

    def close(self) -> None:
        """Ends all processes; Ctrl-C is handled as before."""
        if self.begun is not None:
            self.begun.close()
        if "ending" in vars(self):
            self.ending.restore()
