"""What one pytest session shares: its settings, its runs, and how it ends."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from t5x_harness.system.ending import Ending

from . import marks
from ._pytest_internals import temporary_folders
from .progress import TerminalProgress
from .session_settings import SessionSettings

if TYPE_CHECKING:
    from t5x_harness.report import Report
    from t5x_harness.runs.pipeline import BackendFactory
    from t5x_harness.runs.pool import RunContext
    from t5x_harness.runs.shared import SharedRuns

SESSION = pytest.StashKey["HarnessSession"]()


class HarnessSession(SessionSettings):
    """Owns everything that outlives a test.

    Args:
      config: pytest's.
      write_report: writes the table of the runs to the terminal.
    """

    def __init__(
        self, config: pytest.Config, write_report: Callable[[pytest.TerminalReporter, HarnessSession], None]
    ) -> None:
        super().__init__(config)
        self._write_report = write_report
        self._started = time.perf_counter()

    @functools.cached_property
    def runs(self) -> SharedRuns:
        """The runs of this session."""
        from t5x_harness.runs.pool import RunPool
        from t5x_harness.runs.shared import SharedRuns

        pool = RunPool(timeout=self.options.timeout, in_process=self.options.in_process, at_once=self.runs_at_once)
        return SharedRuns(pool, self._make_folder, self.progress)

    @property
    def begun(self) -> SharedRuns | None:
        """The runs, if any was asked for."""
        found: SharedRuns | None = vars(self).get("runs")
        return found

    @functools.cached_property
    def progress(self) -> TerminalProgress:
        """Shows what is worked at; made at the first run, as pytest's terminal reporter comes after the plugins."""
        return TerminalProgress(self.config)

    def context_of(self, item: pytest.Item, promote: BackendFactory | None) -> RunContext:
        """Returns where a test's runs are made; ``promote`` makes the backend of those that are jobs."""
        from t5x_harness.runs.pool import RunContext

        return RunContext(marks.network_allowed(item), self.fake_buckets, promote)

    @contextlib.contextmanager
    def working(self) -> Iterator[SharedRuns]:
        """While the block lasts, runs are waited for: with their progress on the terminal, and Ctrl-C ends them."""
        self._follow_controller()
        with self.watching():
            try:
                yield self.runs
            finally:
                self.progress.clear()

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """While the block lasts, Ctrl-C begins the end of the session, unless a debugger, or jobs, are to handle it."""
        others = self.config.option.usepdb or self.options.in_process or self.promotes
        return contextlib.nullcontext() if others or not self.in_use else self.ending.watching()

    @property
    def in_use(self) -> bool:
        """Whether anything of the harness works, or will."""
        return self.expects_runs or (self.begun is not None and self.begun.pool.is_used)

    @functools.cached_property
    def ending(self) -> Ending:
        """What handles Ctrl-C while runs work and once the session is to end; it prints the table of all runs."""
        return Ending(pytest.ExitCode.INTERRUPTED, self._tell)

    def report(self) -> Report:
        """Returns the results of all runs, in the order in which they ended."""
        return self.runs.results.report(time.perf_counter() - self._started)

    def warm_early(self) -> None:
        """Starts the worker's imports while pytest still collects, if the command line asks for runs."""
        distributes = self.config.getoption("dist", "no") != "no"  # xdist's workers have workers of their own
        if self.expects_runs and not distributes:
            self._warm()

    def warm(self, items: Iterable[pytest.Item]) -> None:
        """Starts the worker's imports if one of the selected items will want it, without waiting for them."""
        if any(
            getattr(item, "needs_worker", False) or "t5x_run" in getattr(item, "fixturenames", ()) for item in items
        ):
            self._warm()

    def finish(self, exitstatus: int) -> None:
        """Ends runs whose further stages will not come any more; of interrupted ones it keeps what is known."""
        if self.begun is None:
            return
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            self.begun.finish()
        else:  # interrupted, in one way or another: a stage may be at work
            self.begun.interrupt()

    def close(self) -> None:
        """Ends all processes; Ctrl-C is handled as before."""
        if self.begun is not None:
            self.begun.close()
        if "ending" in vars(self):
            self.ending.restore()

    @property
    def runs_at_once(self) -> int:
        """How many collected runs work at once: one under pytest-xdist, in this process, and where runs are jobs."""
        from t5x_harness.runs.background import runs_at_once

        ahead = self.options.ahead
        if ahead is None and self.options.full_size:
            ahead = 0  # two such runs may need more memory than there is
        alone = self.options.in_process or hasattr(self.config, "workerinput") or self.promotes
        return 1 if alone else runs_at_once(ahead)

    def _warm(self) -> None:
        if not self.config.option.collectonly and not self.options.in_process:
            self.runs.pool.warm(self.spec(()), google=not self.fake_buckets)

    def _make_folder(self) -> Path:
        """Makes the folder of this session's runs, beside those of ``tmp_path``."""
        return temporary_folders(self.config).mktemp("t5x-harness", numbered=False)

    def _follow_controller(self) -> None:
        """Has a worker of xdist's interrupted with its controller; xdist itself does that 5 s later.

        Called in the main thread before any run begins: the kernel forgets it with the thread that asks for it.
        """
        if hasattr(self.config, "workerinput"):
            from t5x_harness.system import processes

            processes.interrupt_with_parent()

    def _tell(self) -> None:
        capture = self.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            self._write_report(self.config.pluginmanager.getplugin("terminalreporter"), self)
