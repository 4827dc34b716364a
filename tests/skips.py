"""In CI, a test may be skipped only for the reasons below, because CI installs what an environment may lack."""

import os
import re
from collections.abc import Iterator

import pytest

ALLOWED = (
    r"no redis-server is installed",  # a real server; every state store is tested with fakeredis
    r"(gcloud|gsutil|curl|pgrep) is not installed",
    r"this kernel has no Landlock",  # or a sandbox does not allow it
    r"no T5X is installed, and T5X_HARNESS_TEST_T5X names none",
    r"/gcs( in mode \w+)? cannot be mounted here: .*",  # without namespaces or /dev/fuse, as in Docker
    r"/gcs( cannot be as Cloud Storage FUSE here)?: .*",
    r"this machine has a /gcs.*",
    r"no machine without namespaces can be made here",
    r"ordinary users (get no namespaces|have no python3) here.*",
    r"the other tests are those of an ordinary user",
    r"connections of native code are not refused here: .*",
    r"the memory of a process cannot be read here",
    r"libtpu is not installed",  # 600 MB, only for Linux on x86
    r"needs a TPU",
    r"not (on this TPU|there)",
    r"CI had no time left for this journey",
)
"""The patterns of allowed reasons: what a machine may lack. The check for each reason is where tests are skipped."""

_ALLOWED = re.compile("|".join(f"(?:Skipped: )?(?:{reason})" for reason in ALLOWED), re.DOTALL)


class SkipsOnTheList:
    """Fails a session in CI that skipped something for a reason that is not on the list."""

    def __init__(self) -> None:
        self._others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a skipped test."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes a skipped file."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if not _ALLOWED.fullmatch(reason):
                self._others.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Fails the session."""
        if self._others and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Lists the skips."""
        for line in sorted(set(self._others)):
            terminalreporter.write_line(f"skipped for a reason that tests/skips.py does not have: {line}")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugin only in CI: elsewhere, tests may run with only some of the extras installed."""
    if os.environ.get("CI"):
        config.pluginmanager.register(SkipsOnTheList())
