"""The pytest plugin: hooks of a few lines that call the other modules of this package.

It is loaded in every pytest run of its environment, so nothing heavy is imported here and nothing happens unless gin
files, the ``smoke`` marker or a fixture ask for it.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

from t5x_harness.findings.printable import printable
from t5x_harness.fixtures.every import *  # noqa: F403 - pytest finds the fixtures here
from t5x_harness.fixtures.runs import AOT_RUNNER, AUXILIARY_RUNNER, RUNNER
from t5x_harness.fixtures.vertex import TARGET
from t5x_harness.promotion.marker import MARKERS
from t5x_harness.settings.auxiliary import MARKER
from t5x_harness.settings.command_line import add_to_pytest, rewrite_gin

from . import gin_items, marks, promoted_items, promotion, reports
from .requested_runs import compile_for, run_auxiliary_for, run_for
from .session import SESSION, HarnessSession, SessionInterruption, usage_errors, warn_of_old_names


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the groups ``t5x-harness`` and ``t5x-harness-tpu``."""
    add_to_pytest(parser.getgroup, parser.addini)


def pytest_load_initial_conftests(args: list[str]) -> None:
    """Takes Gin bindings as T5X does, in the hook that may change the command line."""
    with usage_errors():
        args[:] = rewrite_gin(args)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers and this run's session object; adds declared runs to the paths that pytest collects."""
    for line in (*MARKERS, MARKER):
        config.addinivalue_line("markers", line)
    with usage_errors():
        session = config.stash[SESSION] = HarnessSession(config, reports.write_runs)
        session.settings.check()
        promoted = config.stash[promotion.PROMOTION] = promotion.Promotion(session)
        if promoted.active:
            _ = promoted.settings
    warn_of_old_names(config)
    config.stash[RUNNER], config.stash[AUXILIARY_RUNNER] = run_for, run_auxiliary_for
    config.stash[AOT_RUNNER] = compile_for
    config.stash[TARGET] = lambda: promoted.target
    gin_items.add_declared_runs(config, session)
    config.pluginmanager.register(SessionInterruption(session), "t5x_harness_interruption")
    if config.pluginmanager.hasplugin("xdist"):
        from . import xdist_runs

        config.pluginmanager.register(xdist_runs, "t5x_harness_xdist")
        config.pluginmanager.register(xdist_runs.ControllerInterruption(), "t5x_harness_xdist_interruption")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends every process that the session started, even after Ctrl-C, and jobs that a second Ctrl-C left running."""
    try:
        if session := config.stash.get(SESSION, None):
            session.close()
    finally:
        if promoted := config.stash.get(promotion.PROMOTION, None):
            promoted.end()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Names the T5X, slice and mesh in use, if the session uses anything of the plugin."""
    return printable([*gin_items.header(config, config.stash[SESSION]), *config.stash[promotion.PROMOTION].header()])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Turns run configs and declared runs into collectors."""
    return gin_items.collect_file(file_path, parent)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Starts the imports in the background before collection, if the command line shows that they are needed."""
    session.config.stash[SESSION].warm_early()


@pytest.hookimpl(trylast=True)  # after -m has selected items
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replaces and reorders promoted tests, and the stages of runs that wait for jobs."""
    promoted_items.arrange(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Sends the first jobs that are known before any test runs."""
    promoted_items.submit_early(session)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds jobs to reports, takes a shipped test's reports from its job, and masks secrets.

    Re-raises a Ctrl-C that was lost.
    """
    report = yield
    item.config.stash[promotion.PROMOTION].raise_pending_interrupt(call.excinfo.value if call.excinfo else None)
    reports.add_job_sections(item, report)
    return reports.without_secrets_in(item, promoted_items.report_of(item, report))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Checks the runs together; starts the imports in the background if any selected item will need them."""
    harness = session.config.stash[SESSION]
    specs = {item.spec for item in session.items if hasattr(item, "spec")}
    with usage_errors():
        harness.settings.configuration.check_goldens(sorted(specs, key=lambda spec: spec.gin_files))
    harness.warm_for(session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Lets a smoke test reach only loopback, and fails it if it exercised nothing."""
    with promotion.network_guarded(item):
        result = yield
    marks.check_exercised(item)
    marks.check_auxiliary(item)
    promotion.check_sent(item)
    return result


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends a run's process as soon as none of its stages follows."""
    gin_items.leave(item, nextitem)
    promoted_items.submit_early(item.session)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test with a mistake in one of the harness's markers, or one that is promoted and has no job."""
    marks.begin(item)
    marks.check(item)
    promotion.check_promotable(item)


@pytest.hookimpl(tryfirst=True)  # before JUnit's file is written
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Ends jobs, and runs that will get no further stage; keeps the results of interrupted ones."""
    session.config.stash[promotion.PROMOTION].close()
    whole = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    session.config.stash[SESSION].finish(interrupted=exitstatus not in whole)
    reports.record_versions(session.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the table of all runs, and the state of jobs."""
    config.stash[SESSION].ending.tell()
    reports.write_jobs(terminalreporter, config)
