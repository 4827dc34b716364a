"""Fixtures for the API without a server, and for processes with an unmodified SDK that use a session's server."""

import functools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_calls import calls_to
from sdk_client import INTERPRETERS, SdkClient

from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex_admin import FakeVertex


def pytest_pycollect_makemodule() -> None:
    """Skips the tests of this folder if the extra vertex is not installed."""
    for name in ("google.cloud.aiplatform_v1", "fakeredis"):
        pytest.importorskip(name, reason="needs the extra vertex")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Any]:
    """Yields an API in this process, with its state in memory."""
    from t5x_harness.google.vertex.settings import VertexSettings
    from t5x_harness.google.vertex.state import open_store
    from t5x_harness.google.vertex.wire.api import Api

    api = Api(VertexSettings(tmp_path / "root", tmp_path / "jobs"), open_store("memory:"))
    yield api
    api.close()


@pytest.fixture
def call(api: Any) -> Callable[..., Any]:
    """Returns a function that calls a method of the API; see :func:`calls_to`."""
    return calls_to(api)


@pytest.fixture
def refused(call: Callable[..., Any]) -> Callable[..., tuple[str, str]]:
    """Returns ``refused(method, **fields)``, which returns the code and the message of a call's error."""
    from t5x_harness.google.vertex.wire.errors import ApiError

    def ask(method: str, **fields: Any) -> tuple[str, str]:
        with pytest.raises(ApiError) as caught:
            call(method, **fields)
        return caught.value.code.value, caught.value.message

    return ask


@pytest.fixture(scope="session", params=INTERPRETERS)
def sdk_process(
    request: pytest.FixtureRequest, fake_gcs_server: EmulatedCloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SdkClient]:
    """Yields a process with an unmodified SDK in it."""
    folder = tmp_path_factory.mktemp("sdk")
    environment = {**os.environ, **fake_gcs_server.environment(), "HOME": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
    client = SdkClient(request.param, environment, folder / "log")
    yield client
    client.close()


@pytest.fixture
def sdk(
    request: pytest.FixtureRequest, sdk_process: SdkClient, fake_gcs_server: EmulatedCloud
) -> Iterator[Callable[..., Any]]:
    """Yields ``sdk(code, **given)``, which runs code and returns the variable ``result``.

    The code can use ``ai``, the SDK; ``init``, its init for a transport (gRPC unless a test sets another); and
    ``name``, a unique name. Everything that it made in Vertex AI is removed afterward, because other tests share the
    server.
    """
    sdk_process.run("begin(transport)", transport=getattr(request, "param", "grpc"))
    yield functools.partial(sdk_process.run, name=f"n{uuid.uuid4().hex[:8]}")
    FakeVertex(fake_gcs_server).reset()


@pytest.fixture(params=["memory:", "fakeredis:"])
def two_calls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Callable[..., Any]]]:
    """Yields two functions that call methods of two APIs with one state."""
    from t5x_harness.google.vertex.settings import VertexSettings
    from t5x_harness.google.vertex.state import open_store
    from t5x_harness.google.vertex.wire.api import Api

    state = open_store(request.param)
    settings = VertexSettings(root=tmp_path / "root", folder=tmp_path / "jobs")
    yield [calls_to(Api(settings, state)) for _ in range(2)]
    state.close()
