"""A server whose application returns the request that it got."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.google.session import EmulatedCloud

ECHO = "echo_app:make_app"


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an application that returns the request that it got, for servers that a test starts."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return ECHO


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    """A session for all tests that only send requests."""
    session = EmulatedCloud(tmp_path_factory.mktemp("google"), app=ECHO)
    with pytest.MonkeyPatch.context() as patch:  # not for the processes of other tests
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        session.start()
    with session:
        yield session


Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def client(google: EmulatedCloud, tmp_path: Path) -> Shell:
    """Runs a command as a client of the session, with an empty home folder."""

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **google.environment(), "HOME": str(tmp_path), **variables}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    return run
