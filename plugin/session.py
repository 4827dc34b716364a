"""What one pytest session shares: its settings, and its runs on pytest's terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from t5x_harness.promotion.expression import AOT, SMOKE, promotes, selects, selects_only
from t5x_harness.runs.session import RunSession
from t5x_harness.spec import AotMode, Stage
from t5x_harness.system.ending import Ending
from t5x_harness.upstream.pytest import temporary_folders, write_past_line

from . import options

if TYPE_CHECKING:
    from t5x_harness.workers import InlineProgress

SESSION = pytest.StashKey["HarnessSession"]()


class HarnessSession(RunSession):
    """The runs of pytest's session.

    Args:
      config: pytest's.
      write_report: writes the table of the runs to the terminal.

    Attributes:
      config: as above.
      expression: of ``-m``.
    """

    def __init__(
        self, config: pytest.Config, write_report: Callable[[pytest.TerminalReporter, HarnessSession], None]
    ) -> None:
        self.config = config
        self.expression: str = config.option.markexpr or ""
        self._write_report = write_report
        promoting = promotes(self.expression)
        by_name = any(str(arg).partition("::")[0].endswith(".gin") for arg in config.args)
        super().__init__(
            options.configuration_of(config),
            expects_runs=promoting or by_name or any(selects_only(self.expression, mark) for mark in (SMOKE, AOT)),
            promotes=promoting,
            debugs=config.option.usepdb,
            is_worker=hasattr(config, "workerinput"),
        )

    @property
    def aot(self) -> AotMode | None:
        """How the programs of collected runs are compiled; None where ``-m`` leaves that out, or nobody asks."""
        if not selects(self.expression, AOT):
            return None
        return super().aot or (AotMode.DEPTHS if selects_only(self.expression, AOT) else None)

    def make_progress(self) -> InlineProgress:
        """Makes what shows progress; at the first run, as pytest's terminal reporter comes after the plugins."""
        from t5x_harness.workers import InlineProgress

        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        watched = reporter is not None and reporter.isatty and self.config.get_verbosity() >= 0

        def write(text: str) -> None:
            with self._uncaptured():
                write_past_line(reporter, text)

        return InlineProgress(write, watched=watched)

    def make_folder(self) -> Path:
        """Makes the folder of this session's runs, beside those of ``tmp_path``."""
        return temporary_folders(self.config).mktemp("t5x-harness", numbered=False)

    def make_ending(self) -> Ending:
        """Makes what handles Ctrl-C; it prints the table of all runs."""

        def tell() -> None:
            with self._uncaptured():
                self._write_report(self.config.pluginmanager.getplugin("terminalreporter"), self)

        return Ending(pytest.ExitCode.INTERRUPTED, tell)

    def warm_for(self, items: Sequence[pytest.Item]) -> None:
        """Starts the worker's imports if one of the selected items will want it, without waiting for them."""
        stages = any(getattr(item, "stage", Stage.LINT) is not Stage.LINT for item in items)  # which lint reads alone
        tests = any({"t5x_run", "t5x_aot"}.intersection(getattr(item, "fixturenames", ())) for item in items)
        if (stages or tests) and not self.config.option.collectonly:
            self.warm()

    def warm_early(self) -> None:
        """Starts them while pytest still collects, if the command line asks for runs."""
        distributes = self.config.getoption("dist", "no") != "no"  # xdist's workers have workers of their own
        if self.expects_runs and not distributes and not self.config.option.collectonly:
            self.warm()

    def _uncaptured(self) -> contextlib.AbstractContextManager[None]:
        capture = self.config.pluginmanager.getplugin("capturemanager")
        return capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext()


class Interruption:
    """Ctrl-C in a session with runs: they are killed at once, and what is known of them is reported.

    Registered as a plugin of its own, because the hook is not given pytest's configuration. Where there are jobs,
    Ctrl-C is theirs: see :class:`t5x_harness.vertex.interrupts.Interrupts`.
    """

    def __init__(self, session: HarnessSession) -> None:
        self._session = session

    @pytest.hookimpl(tryfirst=True)  # before pytest renders the traceback, which takes seconds
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Kills runs; a second Ctrl-C does not spoil what pytest has yet to say."""
        in_full = type(excinfo.value) is not KeyboardInterrupt or self._session.config.option.fulltrace
        if self._session.interrupt() and not in_full:
            excinfo.traceback = excinfo.traceback[-1:]  # all that is shown
