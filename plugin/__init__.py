"""The pytest plugin: hooks of a few lines that hand over to the modules beside this one.

It is loaded in every pytest run of its environment, so nothing heavy is imported here and nothing happens unless gin
files, the ``smoke`` marker or a fixture ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from t5x_harness.fixtures.runs import RUNNER, t5x_bindings, t5x_run, t5x_search_paths, t5x_slice
from t5x_harness.fixtures.samples import fake_hf_dataset, sample_rows, t5x_samples
from t5x_harness.fixtures.storage import fake_gcs, fake_gcs_server, gcs_bucket, gcs_tree
from t5x_harness.fixtures.storage_fuse import fuse_mode, fuse_path
from t5x_harness.fixtures.storage_s3 import fake_s3, fake_s3_server
from t5x_harness.fixtures.tasks import tiny_task
from t5x_harness.fixtures.vertex import vertex, vertex_experiment, vertex_options, vertex_sdk, vertex_tensorboard
from t5x_harness.fixtures.vertex_target import TARGET, vertex_target

from . import (
    collection,
    gin_items,
    interrupted,
    job_sections,
    junit,
    marks,
    options,
    promoted_items,
    promotion,
    promotion_options,
    shipped_items,
    summary,
)
from .requested_runs import run_for
from .session import SESSION, HarnessSession

__all__ = [
    "fake_gcs",
    "fake_gcs_server",
    "fake_hf_dataset",
    "fake_s3",
    "fake_s3_server",
    "fuse_mode",
    "fuse_path",
    "gcs_bucket",
    "gcs_tree",
    "sample_rows",
    "t5x_bindings",
    "t5x_run",
    "t5x_samples",
    "t5x_search_paths",
    "t5x_slice",
    "tiny_task",
    "vertex",
    "vertex_experiment",
    "vertex_options",
    "vertex_sdk",
    "vertex_target",
    "vertex_tensorboard",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the groups ``t5x-harness`` and ``t5x-harness-tpu``: see :mod:`.options` and :mod:`.promotion_options`."""
    options.add_options(parser)
    promotion_options.add_options(parser)


def pytest_load_initial_conftests(args: list[str]) -> None:
    """Takes Gin bindings as T5X does: this is where a plugin may change the command line."""
    options.take_gin_flags(args)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers and this run's session object; declared runs join what pytest collects."""
    marks.register(config)
    session = config.stash[SESSION] = HarnessSession(config, summary.write)
    session.check()
    options.warn_of_old_names(config)
    promoted = config.stash[promotion.PROMOTION] = promotion.Promotion(config, session)
    config.stash[RUNNER], config.stash[TARGET] = run_for, lambda: promoted.target
    promoted.check_options()
    collection.add_declared_runs(config, session)
    config.pluginmanager.register(interrupted.Interruption(config), "t5x_harness_interruption")
    if config.pluginmanager.hasplugin("xdist"):
        from . import xdist_runs

        config.pluginmanager.register(xdist_runs, "t5x_harness_xdist")
        config.pluginmanager.register(xdist_runs.Interruption(), "t5x_harness_xdist_interruption")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends every process that the session started, also after Ctrl-C, and jobs if a second Ctrl-C kept them."""
    try:
        if session := config.stash.get(SESSION, None):
            session.close()
    finally:
        if promoted := config.stash.get(promotion.PROMOTION, None):
            promoted.shared.end()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Says which T5X, slice and mesh are used, when anything here is used at all."""
    return [*summary.header(config.stash[SESSION]), *config.stash[promotion.PROMOTION].header()]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Turns run configs and declared runs into collectors."""
    return collection.collect_file(file_path, parent)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Starts the imports in the background before collecting, where the command line tells that they are needed."""
    session.config.stash[SESSION].warm_early()


@pytest.hookimpl(trylast=True)  # of what -m has selected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts promoted tests that are shipped, and stages of runs that wait for jobs, where they belong."""
    promoted_items.arrange(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Sends the first jobs that can be known before any test runs."""
    shipped_items.submit_early(session)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds jobs to reports; a shipped test's are those made in its job. Raises a Ctrl-C that was lost."""
    report = yield
    item.config.stash[promotion.PROMOTION].shared.raise_pending_interrupt(call.excinfo.value if call.excinfo else None)
    job_sections.add_job_sections(item, report)
    return shipped_items.report_of(item, report)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Checks the runs together; starts the imports in the background if any selected item will need them."""
    harness = session.config.stash[SESSION]
    harness.check_goldens(session.items)
    harness.warm(session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A smoke test reaches loopback only, and fails if it exercised nothing."""
    with promoted_items.network_guarded(item):
        result = yield
    marks.check_exercised(item)
    promoted_items.check_sent(item)
    return result


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends a run's process as soon as no further stage of it follows."""
    gin_items.leave(item, nextitem)
    shipped_items.submit_early(item.session)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test whose ``slice`` or ``tpu`` marker has a mistake in it, or that is promoted and has no job."""
    marks.check_slice(item)
    marks.check_tpu(item)
    promoted_items.check_promotable(item)


@pytest.hookimpl(tryfirst=True)  # before JUnit's file is written
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Ends runs whose further stages will not come any more, and jobs; of interrupted ones it keeps what is known."""
    session.config.stash[promotion.PROMOTION].shared.close()
    session.config.stash[SESSION].finish(exitstatus)
    junit.record_versions(session.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the table of all runs, and what is to be said of jobs."""
    config.stash[SESSION].ending.tell()
    summary.write_jobs(terminalreporter, config.stash[promotion.PROMOTION])
