"""The API without a server: what a request's bytes are answered with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PARENT = "projects/t5x-harness/locations/us-central1"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Any]:
    """An API in this process with all of its parts, and with its state in memory."""
    pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")
    from t5x_harness.google.vertex.api.service import Api

    api = Api.local(tmp_path)
    yield api
    api.close()


@pytest.fixture
def call(api: Any) -> Callable[..., Any]:
    """Calls a method: ``call("JobService.GetCustomJob", name="…")`` returns the response's message.

    Fields of the request are given as the class of the request takes them; ``ApiError`` is raised for errors.
    """
    from t5x_harness.google.vertex.api.rpc_table import rpc_table

    def ask(method: str, **fields: Any) -> Any:
        rpc = rpc_table().named(method)
        assert rpc is not None, f"the library has no {method}"
        return rpc.response.FromString(
            api.call(rpc.path, rpc.request(**fields).SerializeToString(), api.authority.token)
        )

    return ask
