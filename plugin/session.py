"""The settings and runs that one pytest session shares; pytest's terminal shows the runs."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from t5x_harness.findings.printable import printable
from t5x_harness.promotion.marker import AOT, SMOKE, ResourcesError, promotes, selects, selects_only
from t5x_harness.settings.command_line import OLD_NAMES, layers_of, pytest_name
from t5x_harness.settings.configuration import Configuration, merged
from t5x_harness.settings.forms import Layer, SettingsError
from t5x_harness.settings.options import JOBS, RUNS, JobSettings
from t5x_harness.settings.project import load_project
from t5x_harness.settings.session import SessionSettings
from t5x_harness.spec import Stage
from t5x_harness.spec.option import Option
from t5x_harness.system.ending import Ending
from t5x_harness.system.processes import interrupt_with_parent
from t5x_harness.upstream.pytest import temporary_folders, write_past_line
from t5x_harness.vertex.target import VertexTargetError

if TYPE_CHECKING:
    from t5x_harness.runs.session import RunRegistry
    from t5x_harness.workers.progress import InlineProgress


SESSION = pytest.StashKey["HarnessSession"]()


class HarnessSession:
    """The settings of pytest's session, and its runs, which begin when first requested.

    Args:
      config: pytest's config.
      write_report: a function that writes the table of the runs to the terminal.

    Attributes:
      config: the argument.
      expression: the value of ``-m``.
      settings: the settings of runs, from the options, the project and the folder.
      expects_runs: whether the session will make runs.
      promotes: whether the runs are jobs elsewhere, which handle Ctrl-C.
      is_worker: whether this process is a worker of pytest-xdist.
      begun: the runs; None until one is requested.
      started: the time when the session began, on :func:`time.perf_counter`'s clock.

    Raises:
      SettingsError: a value is not a valid one, or pyproject.toml has a mistake in it.
    """

    def __init__(
        self, config: pytest.Config, write_report: Callable[[pytest.TerminalReporter, HarnessSession], None]
    ) -> None:
        self.config = config
        self.expression: str = config.option.markexpr or ""
        self.promotes = promotes(self.expression)
        self.is_worker = hasattr(config, "workerinput")
        only_aot = selects_only(self.expression, AOT)
        by_name = any(str(arg).partition("::")[0].endswith(".gin") for arg in config.args)
        self.expects_runs = self.promotes or by_name or only_aot or selects_only(self.expression, SMOKE)
        here, root = config.invocation_params.dir, config.rootpath
        if config.get_verbosity() > 0:
            config.option.t5x_timings = True
        self.settings = SessionSettings(
            Configuration(_layers(config, RUNS), load_project(root), here, root, pytest_name),
            compiles=(only_aot or None) if selects(self.expression, AOT) else False,
        )
        self._write_report = write_report
        self.begun: RunRegistry | None = None
        self._ending: Ending | None = None
        self.started = time.perf_counter()

    @property
    def runs(self) -> RunRegistry:
        """The runs of this session."""
        if self.begun is None:
            from t5x_harness.runs.pool import RunPool
            from t5x_harness.runs.session import RunRegistry

            given = self.settings.options
            pool = RunPool(
                timeout=given.timeout,
                in_process=given.in_process,
                parallel=self.runs_at_once,
                keep=not given.no_keep,
            )
            # Next to the folders of tmp_path.
            folder = functools.partial(temporary_folders(self.config).mktemp, "t5x-harness", numbered=False)
            self.begun = RunRegistry(pool, folder, self.progress)
        return self.begun

    @property
    def runs_at_once(self) -> int:
        """How many runs work at once: one under pytest-xdist, in this process, and if the runs are jobs."""
        from t5x_harness.runs.pool import runs_at_once

        given, full_size = self.settings.options, self.settings.configuration.settings.full_size
        ahead = 0 if given.ahead is None and full_size else given.ahead  # two may need more memory than is available
        return 1 if given.in_process or self.is_worker or self.promotes else runs_at_once(ahead)

    @property
    def in_use(self) -> bool:
        """Whether any run is working or expected."""
        return self.expects_runs or (self.begun is not None and self.begun.pool.is_used)

    @property
    def why_not_compiled(self) -> str:
        """The reason that programs cannot be compiled for a TPU here; empty if they can."""
        from t5x_harness.aot.libtpu import why_not

        return why_not(in_process=self.settings.options.in_process)

    @functools.cached_property
    def progress(self) -> InlineProgress:
        """The progress display, made for the first run, because pytest's terminal reporter comes after the plugins."""
        from t5x_harness.workers.progress import InlineProgress

        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        watched = reporter is not None and reporter.isatty and self.config.get_verbosity() >= 0

        def write(text: str) -> None:
            with self._uncaptured():
                write_past_line(reporter, text)

        return InlineProgress(write, watched=watched)

    @contextlib.contextmanager
    def working(self) -> Iterator[RunRegistry]:
        """Shows the progress of runs that are waited for while the block lasts, and makes Ctrl-C end them."""
        if self.is_worker:
            # pytest-xdist itself does that 5 s later. Called in the main thread before any run begins, because the
            # kernel forgets the request when the requesting thread ends.
            interrupt_with_parent()
        with self.watching():
            try:
                yield self.runs
            finally:
                self.progress.clear()

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Makes Ctrl-C end the session, unless a debugger or jobs handle it."""
        others = self.config.option.usepdb or self.settings.options.in_process or self.promotes
        return contextlib.nullcontext() if others or not self.in_use else self.ending.watching()

    @property
    def ending(self) -> Ending:
        """Handles Ctrl-C while runs work and while the session ends, and prints the table of all runs."""

        def tell() -> None:
            with self._uncaptured():
                self._write_report(self.config.pluginmanager.getplugin("terminalreporter"), self)

        if self._ending is None:
            self._ending = Ending(pytest.ExitCode.INTERRUPTED, tell)
        return self._ending

    def finish(self, *, interrupted: bool) -> None:
        """Ends runs that will get no further stage, and keeps the results of interrupted ones."""
        if self.begun is not None:
            if interrupted:  # by whatever means: a stage may be running
                self.begun.interrupt()
            else:
                self.begun.finish()

    def close(self) -> None:
        """Ends all processes, and restores the handling of Ctrl-C."""
        if self.begun is not None:
            self.begun.close()
        if self._ending is not None:
            self._ending.restore()

    def warm(self) -> None:
        """Starts the imports of the worker in the background."""
        if not self.settings.options.in_process:
            self.runs.pool.warm(self.settings.spec(()), google=not self.settings.fake_buckets)

    def warm_for(self, items: Sequence[pytest.Item]) -> None:
        """Starts the worker's imports, without waiting for them, if one of the selected items needs the worker."""
        stages = any(getattr(item, "stage", Stage.LINT) is not Stage.LINT for item in items)  # lint needs none
        tests = any({"t5x_run", "t5x_aot"}.intersection(getattr(item, "fixturenames", ())) for item in items)
        if (stages or tests) and not self.config.option.collectonly:
            self.warm()

    def warm_early(self) -> None:
        """Starts the imports while pytest still collects, if the command line asks for runs."""
        distributes = self.config.getoption("dist", "no") != "no"  # xdist's workers have their own workers
        if self.expects_runs and not distributes and not self.config.option.collectonly:
            self.warm()

    def _uncaptured(self) -> contextlib.AbstractContextManager[None]:
        capture = self.config.pluginmanager.getplugin("capturemanager")
        return capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext()


class SessionInterruption:
    """Handles Ctrl-C in a session with runs: kills them at once, and reports their results so far.

    Registered as a separate plugin, because the hook does not receive pytest's configuration. If there are jobs,
    they handle Ctrl-C: see :class:`t5x_harness.vertex.waiting.Interrupts`.
    """

    def __init__(self, session: HarnessSession) -> None:
        self._session = session

    @pytest.hookimpl(tryfirst=True)  # before pytest renders the traceback, which takes seconds
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Kills the runs; a second Ctrl-C does not spoil the rest of pytest's report."""
        session = self._session
        if not session.in_use or session.promotes:
            return
        session.ending.begin()  # the interrupt may have come elsewhere
        if session.begun is not None:
            session.begun.interrupt()
        if type(excinfo.value) is KeyboardInterrupt and not session.config.option.fulltrace:
            excinfo.traceback = excinfo.traceback[-1:]  # pytest shows only this frame


def job_settings(config: pytest.Config) -> dict[str, Any]:
    """Returns the settings of jobs from command line, environment and ini file, by field.

    Raises:
      SettingsError: a value is not a valid one.
    """
    return vars(JobSettings(**merged(JOBS, _layers(config, JOBS))))


def _layers(config: pytest.Config, options: Sequence[Option]) -> tuple[Layer, ...]:
    here = config.invocation_params.dir
    return layers_of(options, config.getoption, config.getini, os.environ, here, config.rootpath)


@contextlib.contextmanager
def usage_errors(before: str = "") -> Iterator[None]:
    """Makes pytest show mistakes in settings like its own errors, without a traceback; ``before`` names the place."""
    try:
        yield
    except (SettingsError, ResourcesError, VertexTargetError) as error:
        raise pytest.UsageError(printable(f"{before}{error}")) from None


def warn_of_old_names(config: pytest.Config) -> None:
    """Warns of each old name on the command line, once per session."""
    if not hasattr(config, "workerinput"):
        for old, new in getattr(config.option, OLD_NAMES, {}).items():
            warning = pytest.PytestDeprecationWarning(f"{old} is the old name of {new}, and will be removed: use {new}")
            config.issue_config_time_warning(warning, stacklevel=2)
