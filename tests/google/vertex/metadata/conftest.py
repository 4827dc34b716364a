"""A metadata store, and short ways to fill it."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from metadata_names import STORE
from sdk_client import INTERPRETERS, SdkClient

from t5x_harness.google.session import GoogleSession


@pytest.fixture
def create(call: Callable[..., Any]) -> Callable[..., Any]:
    """``create("Artifact", "name", schema_title="…")`` makes a node in the default store."""

    def make(noun: str, identifier: str, **fields: Any) -> Any:
        field = noun.lower()
        request = {"parent": STORE, f"{field}_id": identifier, field: fields}
        return call(f"MetadataService.Create{noun}", **request)

    return make


@pytest.fixture
def names(call: Callable[..., Any]) -> Callable[..., list[str]]:
    """``names("Artifact", 'uri = "x"')`` tells the ids of the nodes that a filter matches."""

    def find(noun: str, text: str = "", **more: Any) -> list[str]:
        page = call(f"MetadataService.List{noun}s", parent=STORE, filter=text, **more)
        return [node.name.rpartition("/")[2] for node in getattr(page, f"{noun.lower()}s")]

    return find


@pytest.fixture
def refused(call: Callable[..., Any]) -> Callable[..., tuple[str, str]]:
    """``refused(method, **fields)`` tells the code and the message of the error that a call is answered with."""
    from t5x_harness.google.vertex.api.errors import ApiError

    def ask(method: str, **fields: Any) -> tuple[str, str]:
        with pytest.raises(ApiError) as caught:
            call(method, **fields)
        return caught.value.code.value, caught.value.message

    return ask


@pytest.fixture(scope="session", params=INTERPRETERS)
def sdk_process(
    request: pytest.FixtureRequest, fake_gcs_server: GoogleSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SdkClient]:
    """A process with an unmodified SDK in it."""
    pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")
    folder = tmp_path_factory.mktemp("sdk")
    environment = {**os.environ, **fake_gcs_server.environment(), "HOME": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
    client = SdkClient(request.param, environment, folder / "log")
    yield client
    client.close()


@pytest.fixture
def sdk(request: pytest.FixtureRequest, sdk_process: SdkClient) -> Callable[..., Any]:
    """``sdk(code, **given)`` runs code and returns what it leaves in ``result``.

    The code knows ``ai``, the SDK; ``init``, its init for a transport, gRPC if a test has no other; and ``name``, which
    is nobody else's.
    """
    sdk_process.run("begin(transport)", transport=getattr(request, "param", "grpc"))
    return functools.partial(sdk_process.run, name=f"n{uuid.uuid4().hex[:8]}")
