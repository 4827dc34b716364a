"""In CI, a test may be skipped for the reasons below and no other: what an environment lacks is installed there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

ALLOWED = (
    r"no redis-server is installed",  # a real one; every state store is tested with fakeredis
    r"(gcloud|gsutil|curl|pgrep) is not installed",
    r"this kernel has no Landlock",  # or a sandbox does not let it be used
    r"no T5X is installed, and T5X_HARNESS_TEST_T5X names none",
    r"/gcs( in mode \w+)? cannot be mounted here: .*",  # without namespaces or /dev/fuse, as in Docker
    r"/gcs( cannot be as Cloud Storage FUSE here)?: .*",
    r"this machine has a /gcs.*",
    r"no machine without namespaces can be made here",
    r"ordinary users (get no namespaces|have no python3) here.*",
    r"the other tests are those of an ordinary user",
    r"connections of native code are not refused here: .*",
    r"the memory of a process cannot be read here",
    r"libtpu is not installed",  # 600 MB, for Linux on x86 alone
    r"needs a TPU",
    r"not (on this TPU|there)",
)
"""What a machine may lack; a test of each pattern's own reason is where it is skipped."""

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
        """Lists what was skipped."""
        for line in sorted(set(self._others)):
            terminalreporter.write_line(f"skipped for a reason that tests/skips.py does not have: {line}")


def pytest_configure(config: pytest.Config) -> None:
    """Acts in CI only: elsewhere a part of the extras is enough to test what it is for."""
    if os.environ.get("CI"):
        config.pluginmanager.register(SkipsOnTheList())
