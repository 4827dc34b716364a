"""Servers share a state, which they change in any order of their steps, keep secrets, and name missing packages."""

import asyncio
import dataclasses
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
from api_calls import PARENT, calls_to
from asking import ask
from google.cloud.aiplatform_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_store import SteppedStore, interleave

from t5x_harness.google.environment import google_environment
from t5x_harness.google.identity import Authority, project_number
from t5x_harness.google.server.vertex_endpoint import VertexService
from t5x_harness.google.session import EmulatedCloud, ServerError, ask_server
from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.ownership import Owner, Ownership
from t5x_harness.google.vertex.services import Clock, Resources, aspect_key
from t5x_harness.google.vertex.settings import VertexOptions, VertexSettings
from t5x_harness.google.vertex.wire.api import Api
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.google.vertex_admin import FakeVertex


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


def test_a_state_that_cannot_be_had_is_said_at_the_start() -> None:
    with pytest.raises(ServerError, match="cannot be used for state"):
        EmulatedCloud(vertex=VertexOptions(state="unix:///none?db=0")).start()


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


BOARD = "projects/1/locations/us-central1/tensorboards/1"
JOB = "projects/1/locations/us-central1/customJobs/1"
in_any_order = given(order=st.lists(st.booleans(), max_size=16))
quickly = settings(max_examples=60, deadline=None, database=None, derandomize=True)


CustomJob, Tensorboard, Experiment = (
    getattr(types, name).pb() for name in ("CustomJob", "Tensorboard", "TensorboardExperiment")
)


@in_any_order
@quickly
def test_nothing_is_left_below_what_is_deleted(order: list[bool]) -> None:
    state = SteppedStore()
    resources = Resources(state, Clock())
    resources.create(BOARD, Tensorboard())
    child = f"{BOARD}/experiments/e"
    made, deleted = interleave(
        state,
        lambda: resources.create(child, Experiment(display_name="e")),
        lambda: resources.delete(BOARD),
        order,
    )
    assert deleted is None
    assert state.keys(BOARD) == []
    if isinstance(made, ApiError):
        assert (made.code, made.message) == (StatusCode.NOT_FOUND, f"The requested resource {BOARD} was not found.")
    else:
        assert made.name == child


@in_any_order
@quickly
def test_a_job_is_not_failed_while_its_server_takes_it(order: list[bool]) -> None:
    state = SteppedStore()
    apis = [Api(VertexSettings(Path("root"), Path("jobs")), state=state) for _ in range(2)]
    apis[0].services.resources.create(JOB, CustomJob(state=1))
    one, other = (Ownership(api.services, lambda _: None) for api in apis)
    other._me = dataclasses.replace(Owner.this(), host="elsewhere")
    try:
        interleave(state, lambda: one.take(JOB), lambda: other.look_after(JOB, CustomJob), order)
        assert apis[0].services.resources.get(JOB, CustomJob).state == JobState.QUEUED
        assert state.get(aspect_key(JOB, "owner")) is not None
    finally:
        one.close()


def test_a_job_whose_server_ended_before_it_took_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SteppedStore()
    api = Api(VertexSettings(Path("root"), Path("jobs")), state=state)
    api.services.resources.create(JOB, CustomJob(state=1))
    looking = Ownership(api.services, lambda _: None)
    looking.look_after(JOB, CustomJob)
    assert api.services.resources.get(JOB, CustomJob).state == JobState.QUEUED
    now = api.services.clock.now()
    monkeypatch.setattr(api.services.clock, "now", lambda: now + 31_000_000_000)
    looking.look_after(JOB, CustomJob)
    job = api.services.resources.get(JOB, CustomJob)
    assert (job.state, job.error.message) == (
        JobState.FAILED,
        "t5x-harness: the server that created this job has ended before it could run it.",
    )


@in_any_order
@quickly
def test_points_of_a_series_that_is_deleted_meanwhile_are_not_kept(order: list[bool]) -> None:
    """Otherwise, a later series with the same name would have these points."""
    state = SteppedStore()
    api = Api(VertexSettings(Path("root"), Path("jobs")), state=state)
    run = f"{BOARD}/experiments/e/runs/r"
    series = f"{run}/timeSeries/1"
    for name, kept in ((BOARD, Tensorboard()), (run, types.TensorboardRun.pb()())):
        state.create(name, kept.SerializeToString())
    state.create(series, types.TensorboardTimeSeries.pb()(name=series, value_type=1).SerializeToString())
    data = {"tensorboard_time_series_id": "1", "value_type": 1, "values": [{"step": 1, "scalar": {"value": 2.0}}]}
    interleave(
        state,
        lambda: calls_to(api)(
            "TensorboardService.WriteTensorboardRunData", tensorboard_run=run, time_series_data=[data]
        ),
        lambda: api.services.resources.delete(series),
        order,
    )
    assert state.keys(series) == []
