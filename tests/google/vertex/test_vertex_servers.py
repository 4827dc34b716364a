"""Servers share a state, keep secrets, and name missing packages."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from asking import ask

from t5x_harness.google.environment import google_environment
from t5x_harness.google.identity import Authority, project_number
from t5x_harness.google.server.vertex_endpoint import VertexService
from t5x_harness.google.session import EmulatedCloud, ServerError, ask_server
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.google.vertex_admin import FakeVertex

PARENT = "projects/t5x-harness/locations/us-central1"


def _ask(session: EmulatedCloud, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
    token = (session.endpoints.folder / "token").read_text() if token is None else token
    data = None if body is None else json.dumps(body).encode()
    return ask_server(session.endpoints, method, path, data, {"Authorization": f"Bearer {token}"})


def test_two_servers_on_one_state_have_the_same_resources() -> None:
    with EmulatedCloud(vertex=VertexOptions(state="fakeredis:")) as one:
        with EmulatedCloud(vertex=VertexOptions(state=one.endpoints.state)) as other:
            made = _ask(one, "POST", f"/v1/{PARENT}/tensorboards", {"displayName": "shared"})["response"]
            assert other.endpoints.state == one.endpoints.state == FakeVertex(one).state_url
            assert _ask(other, "GET", f"/v1/{PARENT}/tensorboards")["tensorboards"] == [
                {name: value for name, value in made.items() if name != "@type"}
            ]
            _ask(other, "DELETE", f"/v1/{made['name']}")
        assert _ask(one, "GET", f"/v1/{PARENT}/tensorboards") == {}


@pytest.mark.parametrize("state", ["nowhere:", "unix:///none?db=0"])
def test_a_state_that_cannot_be_had_is_said_at_the_start(state: str) -> None:
    with pytest.raises(ServerError, match="is not a state" if state == "nowhere:" else "cannot be used for state"):
        EmulatedCloud(vertex=VertexOptions(state=state)).start()


def test_the_token_is_in_one_file_that_only_its_owner_reads(fake_gcs_server: EmulatedCloud) -> None:
    endpoints = fake_gcs_server.endpoints
    token = (endpoints.folder / "token").read_text()
    holders = [path for path in endpoints.folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert [path.name for path in holders] == ["token"]
    assert holders[0].stat().st_mode & 0o077 == 0
    assert token not in "\n".join(google_environment(endpoints).values())
    assert token not in endpoints.to_json()


@pytest.mark.parametrize("path", ["faults", "arm", "reset", "state", "entries", "nothing"])
@pytest.mark.parametrize("token", ["", "fake", "é"])
def test_the_harnesss_own_paths_want_it_too(fake_gcs_server: EmulatedCloud, path: str, token: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _ask(fake_gcs_server, "POST", f"/_t5x_harness/vertex/{path}", {}, token=token)
    assert caught.value.code == 401
    error = json.load(caught.value)["error"]
    assert error["status"] == "UNAUTHENTICATED"
    assert error["message"].startswith("Request had invalid authentication credentials. t5x-harness takes ")


def test_who_has_no_token_is_refused_before_anything_is_read_or_made() -> None:
    async def main() -> tuple[list[object], bool]:
        service = VertexService(VertexOptions(), Authority())
        sent: list[object] = []

        async def receive() -> dict[str, object]:
            raise AssertionError("its body is read")

        async def send(message: MutableMapping[str, object]) -> None:
            sent.append(message.get("status"))

        for path in ("/_t5x_harness/vertex/warm", "/v1/projects/p/locations/l/customJobs"):
            scope = {"path": path, "method": "POST", "query_string": b"", "headers": [(b"authorization", b"Bearer no")]}
            await service.answer(scope, receive, send)
        return sent, service._loading is None

    assert asyncio.run(main()) == ([401, None, 401, None], True)


def test_requests_that_wait_stop_no_others() -> None:
    async def main() -> str:
        service = VertexService(VertexOptions(), Authority())
        waiting = threading.Event()
        requests = [asyncio.create_task(service._run(waiting.wait)) for _ in range(100)]
        await asyncio.sleep(0)
        answer = await service._run(lambda: "answered")
        waiting.set()
        await asyncio.gather(*requests)
        return answer

    assert asyncio.run(main()) == "answered"


def test_a_project_is_known_to_version_1_of_resource_manager(fake_gcs_server: EmulatedCloud) -> None:
    headers = {"Authorization": f"Bearer {(fake_gcs_server.endpoints.folder / 'token').read_text()}"}
    host = "cloudresourcemanager.googleapis.com"
    mine = ask(fake_gcs_server, host, "/v1/projects/my-project", headers=headers)
    assert mine == {
        "projectNumber": project_number("my-project"),
        "projectId": "my-project",
        "name": "my-project",
        "lifecycleState": "ACTIVE",
    }
    listed = ask(fake_gcs_server, host, "/v1/projects", headers=headers)["projects"]
    assert listed[0]["projectId"] == "t5x-harness"
    assert mine in listed


def test_a_path_of_the_harness_that_there_is_not(fake_gcs_server: EmulatedCloud) -> None:
    for path, body, status in (("nothing", None, 404), ("arm", {"colour": "red"}, 400), ("arm", [1], 400)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            _ask(fake_gcs_server, "POST", f"/_t5x_harness/vertex/{path}", body)
        assert caught.value.code == status


def test_objects_may_have_names_like_the_apis_paths(fake_gcs: Any) -> None:
    """Both are served under this machine's names. Only a bucket ``v1beta1`` would make such a path ambiguous."""
    bucket = fake_gcs.bucket("bucket")
    fake_gcs.put(bucket, {"v1/projects/x": "object"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        f"{fake_gcs.endpoint}/{bucket}/v1/projects/x"
    ) as answer:
        assert answer.read() == b"object"


def test_without_googles_library_it_says_what_to_install(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from pathlib import Path
sys.modules["google.cloud.aiplatform_v1"] = None
from t5x_harness.google.identity import Authority
from t5x_harness.google.server.vertex_endpoint import VertexMissing, VertexService
from t5x_harness.google.vertex.settings import VertexOptions, VertexSettings

async def main():
    service = VertexService(VertexOptions(warm=True), Authority("secret"))
    await service.open_state()
    service.begin(VertexSettings(Path(), Path()))
    async def receive():
        return {"body": b""}
    async def send(message):
        print(message.get("status", message.get("body")))
    scope = {"path": "/v1/projects/p/locations/l/customJobs", "method": "GET", "query_string": b"",
             "headers": [(b"authorization", b"Bearer secret")]}
    await service.answer(scope, receive, send)
    try:
        async for message in service.stream("/google.cloud.aiplatform.v1.JobService/ListCustomJobs", b"", "", ""):
            print(message)
    except VertexMissing as missing:
        print(missing)
    await service.stop()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
    )
    status, body, missing = done.stdout.splitlines()
    assert (status, done.stderr) == ("403", "")
    assert missing == (
        "t5x-harness emulates Vertex AI with google-cloud-aiplatform, which is not installed here (there is no "
        "google.cloud.aiplatform_v1): python -m pip install 't5x-harness[vertex]'"
    )
    assert "which is not installed here (there is no google.cloud.aiplatform_v1): python -m pip " in body
