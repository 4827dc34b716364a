"""Fixtures for a session's Cloud TPU, and for shells that use it."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from asking import run_command
from cloud_tpu import CloudTpu

from t5x_harness.google.environment import with_programs
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex_admin import FakeVertex


@pytest.fixture
def tpu(fake_gcs_server: EmulatedCloud) -> Iterator[CloudTpu]:
    """Yields a client of the session's Cloud TPU. The TPU VMs are deleted afterward."""
    yield CloudTpu(fake_gcs_server)
    FakeVertex(fake_gcs_server).reset()


@pytest.fixture
def shell_environment(fake_gcs_server: EmulatedCloud, tmp_path: Path) -> Mapping[str, str]:
    """Returns the environment of ``exec`` and ``serve``, with an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, **fake_gcs_server.environment(), "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return with_programs(fake_gcs_server.endpoints, environment)


@pytest.fixture
def shell(shell_environment: Mapping[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Returns a function that runs a command in that environment."""

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_command(*command, env={**shell_environment, **variables}, cwd=tmp_path)

    return run
