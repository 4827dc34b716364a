"""A server whose application says what it was asked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.google.session import GoogleSession

ECHO = "echo_app:make_app"


@pytest.fixture(scope="session")
def _importable() -> Iterator[None]:
    """Servers find the applications of this folder."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(Path(__file__).parent))
    yield
    patch.undo()


@pytest.fixture
def echo(_importable: None) -> str:
    """The name of an application that says what it was asked."""
    return ECHO


@pytest.fixture(scope="session")
def google(_importable: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleSession]:
    """A session for all tests that only ask something."""
    with GoogleSession(tmp_path_factory.mktemp("google"), app=ECHO) as session:
        yield session


Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def client(google: GoogleSession, tmp_path: Path) -> Shell:
    """Runs a command as a client of the session, in a home folder that is empty."""

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **google.environment(), "HOME": str(tmp_path), **variables}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    return run
