"""Cloud TPU as a client asks it: JSON, with the session's token."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.google.environment import with_programs
from t5x_harness.google.server.endpoints import SessionFolder
from t5x_harness.google.session import GoogleSession
from t5x_harness.google.vertex_admin import FakeVertex

ZONE = "projects/t5x-harness/locations/us-central2-b"


class CloudTpu:
    """Asks ``tpu.googleapis.com`` of a session."""

    def __init__(self, session: GoogleSession) -> None:
        self._url = session.endpoints.url
        self._token = SessionFolder(session.endpoints.folder).token.read_text()

    def __call__(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        headers = {"Host": "tpu.googleapis.com", "Authorization": f"Bearer {self._token if token is None else token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/v2/{path}", data, headers, method=method)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def create(self, name: str, accelerator_type: str = "v4-8", **fields: Any) -> Any:
        """Returns a new TPU VM, once it is ready."""
        node = {"acceleratorType": accelerator_type, "runtimeVersion": "tpu-ubuntu2204-base", **fields}
        made = self("POST", f"{ZONE}/nodes?nodeId={name}", node)
        assert "error" not in made, made
        while not self("GET", made["name"])["done"]:
            pass
        return self("GET", f"{ZONE}/nodes/{name}")


@pytest.fixture
def tpu(fake_gcs_server: GoogleSession) -> Iterator[CloudTpu]:
    """Asks the session's Cloud TPU; its TPU VMs are gone afterwards."""
    yield CloudTpu(fake_gcs_server)
    FakeVertex(fake_gcs_server).reset()


@pytest.fixture
def shell_environment(fake_gcs_server: GoogleSession, tmp_path: Path) -> Mapping[str, str]:
    """The environment that ``exec`` and ``serve`` give, with an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, **fake_gcs_server.environment(), "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return with_programs(fake_gcs_server.endpoints, environment)


@pytest.fixture
def shell(shell_environment: Mapping[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in that environment."""

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**shell_environment, **variables},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
