"""Retry tests as in Google's testbench: made at a path, met by requests with an id, and asked for what is left."""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from serving_storage import ask, make_bucket, start_resumable

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.storage_http.retry_tests import method_of

K = 1024
BODY = bytes(range(256)) * 4 * 600  # 600 KB
OBJECT = "/storage/v1/b/bucket/o/a"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    with EmulatedCloud(tmp_path_factory.mktemp("root")) as running:
        make_bucket(running)
        assert ask(running, "PUT", "/bucket/a", BODY)[0] == 200
        yield running


class RetryTest:
    """A retry test of a session, and requests with its id."""

    def __init__(self, session: EmulatedCloud, **instructions: list[str]) -> None:
        self._session = session
        given = {f"storage.{method.replace('__', '.')}": each for method, each in instructions.items()}
        self.created = self._own("POST", "/retry_test", json.dumps({"instructions": given}).encode())
        self.path = f"/retry_test/{self.created['id']}"
        self._id = {"x-retry-test-id": self.created["id"]}

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Any:
        return ask(self._session, method, path, body, {**self._id, **(headers or {})})

    def left(self) -> Any:
        return self._own("GET", self.path)

    def _own(self, method: str, path: str, body: bytes = b"") -> Any:
        status, _, answer = ask(self._session, method, path, body)
        assert status == 200, answer
        return json.loads(answer)


def test_instructions_are_met_in_their_order_by_requests_with_the_id(session: EmulatedCloud) -> None:
    test = RetryTest(session, objects__get=["return-503", "return-429"], buckets__get=["return-reset-connection"])
    assert test.created["completed"] is False
    assert test.created["transport"] == "HTTP"
    assert test.ask("GET", "/storage/v1/b/bucket/o")[0] == 200  # another method
    assert ask(session, "GET", OBJECT)[0] == 200  # without the id
    assert [test.ask("GET", OBJECT)[0] for _ in range(3)] == [503, 429, 200]
    assert test.left()["instructions"] == {
        "storage.objects.get": [],
        "storage.buckets.get": ["return-reset-connection"],
    }
    with pytest.raises(ConnectionResetError):
        test.ask("GET", "/storage/v1/b/bucket")
    assert test.left()["completed"] is True
    assert test.ask("GET", "/storage/v1/b/bucket")[0] == 200


def test_tests_are_listed_and_deleted(session: EmulatedCloud) -> None:
    test = RetryTest(session, buckets__list=["return-503"])
    assert test.created in json.loads(ask(session, "GET", "/retry_tests")[2])["retry_test"]
    assert ask(session, "DELETE", test.path)[::2] == (200, f"Deleted {test.created['id']}".encode())
    for status, _, body in (ask(session, "GET", test.path), test.ask("GET", OBJECT)):
        assert (status, b"There is no retry test" in body) == (404, True)


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({}, "instructions has to be an object with a list of instructions for each method"),
        ({"instructions": {"storage.objects.get": "return-503"}}, "instructions has to be an object"),
        ({"instructions": {"storage.objects.fetch": []}}, "There is no method storage.objects.fetch of Cloud Storage"),
        ({"instructions": {"storage.objects.get": ["return-99"]}}, "does not carry out the instruction 'return-99'"),
        (
            {"instructions": {"storage.objects.insert": ["redirect-send-token-t"]}},
            "t5x-harness does not carry out the instruction 'redirect-send-token-t'; it knows return-CODE, ",
        ),
        (
            {"instructions": {"storage.objects.get": ["return-503"]}, "transport": "GRPC"},
            "t5x-harness carries out retry tests over HTTP, and emulates no Cloud Storage over GRPC",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_refused(session: EmulatedCloud, resource: Any, message: str) -> None:
    status, _, body = ask(session, "POST", "/retry_test", json.dumps(resource).encode())
    assert status == 400
    assert message in json.loads(body)["error"]["message"]


def test_a_stream_breaks_after_a_few_bytes_or_where_it_is_told(session: EmulatedCloud) -> None:
    test = RetryTest(session, objects__get=["return-broken-stream", "return-broken-stream-after-256K"])
    for size in (4, 256 * K):
        with pytest.raises(http.client.IncompleteRead) as caught:
            test.ask("GET", f"{OBJECT}?alt=media")
        assert caught.value.partial == BODY[:size]
    assert test.ask("GET", "/bucket/a")[2] == BODY


def test_a_part_of_an_upload_fails_at_a_byte_of_the_object_and_keeps_the_bytes_before(session: EmulatedCloud) -> None:
    test = RetryTest(session, objects__insert=["return-503-after-400K"])
    at = start_resumable(session, "parts")
    size = len(BODY)
    first = {"content-range": f"bytes 0-{256 * K - 1}/{size}"}
    assert test.ask("PUT", at, BODY[: 256 * K], first)[0] == 308  # it has not come to that byte
    status, _, body = test.ask("PUT", at, BODY[256 * K :], {"content-range": f"bytes {256 * K}-{size - 1}/{size}"})
    assert (status, json.loads(body)["error"]["code"]) == (503, 503)
    status, headers, _ = test.ask("PUT", at, headers={"content-range": f"bytes */{size}"})
    assert (status, headers["range"]) == (308, f"bytes=0-{400 * K - 1}")
    assert test.left()["completed"]
    rest = {"content-range": f"bytes {400 * K}-{size - 1}/{size}"}
    assert test.ask("PUT", at, BODY[400 * K :], rest)[0] == 200
    assert ask(session, "GET", "/bucket/parts")[2] == BODY


def test_the_answer_to_the_last_part_of_an_upload_breaks(session: EmulatedCloud) -> None:
    test = RetryTest(session, objects__insert=["return-broken-stream-final-chunk-after-8B"])
    assert test.ask("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=other", b"x")[0] == 200
    at = start_resumable(session, "last")
    first = {"content-range": f"bytes 0-{256 * K - 1}/{len(BODY)}"}
    assert test.ask("PUT", at, BODY[: 256 * K], first)[0] == 308
    with pytest.raises(http.client.IncompleteRead) as caught:
        test.ask("PUT", at, BODY[256 * K :], {"content-range": f"bytes {256 * K}-{len(BODY) - 1}/{len(BODY)}"})
    assert len(caught.value.partial) == 8
    assert ask(session, "GET", "/bucket/last")[2] == BODY
    assert test.left()["completed"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("objects__get", f"{OBJECT}?alt=media", b""), ("objects__insert", "/bucket/stalled", BODY)],
)
def test_transfers_stall(session: EmulatedCloud, method: str, path: str, body: bytes) -> None:
    test = RetryTest(session, **{method: ["stall-for-1s-after-256K"]})
    start = time.monotonic()
    status, _, answer = test.ask("PUT" if body else "GET", path, body)
    assert (status, time.monotonic() - start >= 1) == (200, True)
    assert answer == (b"" if body else BODY)
    assert test.left()["completed"]


def test_a_bucket_with_the_name_of_the_path(session: EmulatedCloud) -> None:
    make_bucket(session, "retry_test")
    assert ask(session, "PUT", "/retry_test/x", b"x", {"host": "storage.googleapis.com"})[0] == 200
    assert ask(session, "GET", "/storage/v1/b/retry_test/o/x?alt=media")[2] == b"x"
    assert ask(session, "GET", "/retry_test/x")[0] == 404


def test_they_work_beside_the_faults_of_a_test(fake_gcs: FakeGcs, gcs_bucket: str) -> None:
    session = fake_gcs._session
    test = RetryTest(session, buckets__get=["return-503"])
    fake_gcs.fail(500, on="bucket.get")
    assert [test.ask("GET", f"/storage/v1/b/{gcs_bucket}")[0] for _ in range(3)] == [500, 503, 200]
    assert [(it.status, it.fault) for it in fake_gcs.requests] == [(500, "fail"), (503, ""), (200, "")]


METHODS = {
    "storage.bucket_acl.list": "GET /storage/v1/b/x/acl",
    "storage.bucket_acl.insert": "POST /storage/v1/b/x/acl",
    "storage.bucket_acl.patch": "PATCH /storage/v1/b/x/acl/allUsers",
    "storage.buckets.insert": "POST /storage/v1/b",
    "storage.buckets.list": "GET /storage/v1/b",
    "storage.buckets.update": "PUT /storage/v1/b/x",
    "storage.buckets.lockRetentionPolicy": "POST /storage/v1/b/x/lockRetentionPolicy",
    "storage.buckets.getIamPolicy": "GET /storage/v1/b/x/iam",
    "storage.buckets.setIamPolicy": "PUT /storage/v1/b/x/iam",
    "storage.buckets.testIamPermissions": "GET /storage/v1/b/x/iam/testPermissions",
    "storage.default_object_acl.get": "GET /storage/v1/b/x/defaultObjectAcl/allUsers",
    "storage.hmacKey.create": "POST /storage/v1/projects/p/hmacKeys",
    "storage.hmacKey.update": "PUT /storage/v1/projects/p/hmacKeys/k",
    "storage.notifications.delete": "DELETE /storage/v1/b/x/notificationConfigs/1",
    "storage.object_acl.delete": "DELETE /storage/v1/b/x/o/a%2Fb/acl/allUsers",
    "storage.objects.compose": "POST /storage/v1/b/x/o/a/compose",
    "storage.objects.copy": "POST /storage/v1/b/x/o/a/copyTo/b/y/o/c",
    "storage.objects.delete": "DELETE /storage/v1/b/x/o/a/b",
    "storage.objects.get": "GET /download/storage/v1/b/x/o/a",
    "storage.objects.insert": "PUT /resumable/upload/storage/v1/b/x/o",
    "storage.objects.list": "GET /storage/v1/b/x/o",
    "storage.objects.move": "POST /storage/v1/b/x/o/a/moveTo/o/b",
    "storage.objects.rewrite": "POST /storage/v1/b/x/o/a/rewriteTo/b/y/o/c",
    "storage.serviceaccount.get": "GET /storage/v1/projects/p/serviceAccount",
    "": "POST /batch/storage/v1",
}
BY_XML = {
    "storage.objects.get": "HEAD /x/a",
    "storage.objects.insert": "PUT /x/a",
    "storage.objects.delete": "DELETE /x/a",
    "storage.objects.list": "GET /x",
}


@pytest.mark.parametrize(("name", "request_line"), [*METHODS.items(), *BY_XML.items()])
def test_the_methods_of_requests(name: str, request_line: str) -> None:
    method, path = request_line.split()
    assert method_of({"method": method, "raw_path": path.encode(), "query_string": b"", "headers": []}) == name
