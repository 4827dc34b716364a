"""Clients see faults as they would see Google's; requests are recorded; a fault that was not hit fails its test."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.google.faults import Fault
from t5x_harness.google.gcs import FakeGcs

BODY = b"0123456789"


def ask(gcs: FakeGcs, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(gcs.endpoint + path, body, headers or {}, method=method)
    with direct.open(request, timeout=30) as answer:
        return answer.read()


def read(gcs: FakeGcs, bucket: str, name: str = "a") -> Any:
    return ask(gcs, "GET", f"/storage/v1/b/{bucket}/o/{name}?alt=media")


@pytest.fixture
def bucket(fake_gcs: FakeGcs, gcs_bucket: str) -> str:
    fake_gcs.put(gcs_bucket, {"a": BODY, "b": "b"})
    return gcs_bucket


def test_fail_counts_and_matches(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.fail(503, on="download", match="a*", times=1, after=1)
    assert read(fake_gcs, bucket) == BODY
    assert read(fake_gcs, bucket, "b") == b"b"
    with pytest.raises(urllib.error.HTTPError, match="503") as caught:
        read(fake_gcs, bucket)
    message = "t5x-harness: gcs.fail(503, on='download', match='a*', after=1)"
    errors = [{"message": message, "domain": "global", "reason": "backendError"}]
    assert json.loads(caught.value.read()) == {"error": {"code": 503, "message": message, "errors": errors}}
    assert read(fake_gcs, bucket) == BODY
    told = [(r.operation, r.object, r.status, r.sent, r.fault) for r in fake_gcs.requests]
    assert told[:2] == [("download", "a", 200, 10, ""), ("download", "b", 200, 1, "")]
    assert told[2][:3] == ("download", "a", 503)
    assert told[2][4] == "fail"


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "authError"), (408, "uploadBrokenConnection"), (429, "rateLimitExceeded")]
)
def test_errors_have_the_reasons_that_clients_look_at(fake_gcs: FakeGcs, bucket: str, status: int, reason: str) -> None:
    fake_gcs.fail(status)
    with pytest.raises(urllib.error.HTTPError) as caught:
        read(fake_gcs, bucket)
    assert (caught.value.code, json.loads(caught.value.read())["error"]["errors"][0]["reason"]) == (status, reason)


def test_the_xml_api_fails_in_xml(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.fail(503, on="upload", match="c")
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(fake_gcs, "PUT", f"/{bucket}/c", b"x")
    assert caught.value.headers["Content-Type"].startswith("application/xml")
    assert b"<Code>ServiceUnavailable</Code><Message>t5x-harness: gcs.fail(503" in caught.value.read()


def test_reset(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.reset(on="download")
    with pytest.raises((ConnectionResetError, urllib.error.URLError), match="reset"):
        read(fake_gcs, bucket)
    assert [(r.status, r.fault) for r in fake_gcs.requests] == [(0, "reset")]


def test_reset_in_the_middle_of_a_body(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.reset(bytes=300_000, on="upload", match="new")
    path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=new"
    ask(fake_gcs, "POST", path, b"x" * 300_000)  # not longer than the limit, so it does not hit the fault
    with pytest.raises((ConnectionError, urllib.error.URLError), match=r"reset|pipe"):
        ask(fake_gcs, "POST", path, b"y" * 1_000_000)
    uploads = [(r.status, r.received, r.fault) for r in fake_gcs.requests]
    assert uploads == [(200, 300_000, ""), (0, 300_000, "reset")]
    assert read(fake_gcs, bucket, "new") == b"x" * 300_000


def test_fail_after_some_bytes(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.fail(503, bytes=300_000, on="upload")
    path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=new"
    ask(fake_gcs, "POST", path, b"x" * 300_000)  # not longer, so it does not hit the fault
    with pytest.raises(urllib.error.HTTPError, match="503") as caught:
        ask(fake_gcs, "POST", path, b"y" * 1_000_000)
    assert b"gcs.fail(503, bytes=300000, on='upload')" in caught.value.read()
    assert [(r.status, r.received, r.fault) for r in fake_gcs.requests] == [
        (200, 300_000, ""),
        (503, 1_000_000, "fail"),
    ]
    assert read(fake_gcs, bucket, "new") == b"x" * 300_000


def test_a_lost_answer_is_of_something_done(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.lose(on="delete")
    with pytest.raises((ConnectionResetError, urllib.error.URLError), match="reset"):
        ask(fake_gcs, "DELETE", f"/storage/v1/b/{bucket}/o/a")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read(fake_gcs, bucket)


def test_truncate(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.truncate(bytes=4, on="download")
    assert read(fake_gcs, bucket, "b") == b"b"  # too short to be cut
    with pytest.raises(http.client.IncompleteRead) as caught:
        read(fake_gcs, bucket)
    assert caught.value.partial == b"0123"
    assert read(fake_gcs, bucket) == BODY
    assert [(r.sent, r.fault) for r in fake_gcs.requests] == [(1, ""), (4, "truncate"), (10, "")]


@pytest.mark.parametrize("kind", ["stall", "slow"])
def test_late_answers_are_whole(fake_gcs: FakeGcs, bucket: str, kind: str) -> None:
    if kind == "stall":
        fake_gcs.stall(0.2, on="download")
    else:
        fake_gcs.slow(bytes_per_second=50, on="download")
    assert read(fake_gcs, bucket) == BODY  # a fault that is not hit fails the test at its end


def test_the_first_fault_that_is_for_a_request_is_the_one(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.fail(500, times=2)
    fake_gcs.fail(503, on="download", times=None)
    seen = []
    for _ in range(4):
        with pytest.raises(urllib.error.HTTPError) as caught:
            read(fake_gcs, bucket)
        seen.append(caught.value.code)
    assert seen == [500, 500, 503, 503]
    fake_gcs.clear()
    assert read(fake_gcs, bucket) == BODY


OBJECT = "/storage/v1/b/{0}/o"
UPLOAD = "/upload/storage/v1/b/{0}/o"


REQUESTS = [
    ("GET", OBJECT + "/a%2Fb", "get", "a/b"),
    ("GET", OBJECT + "/a/b?alt=media", "download", "a/b"),
    ("GET", "/download" + OBJECT + "/a", "download", "a"),
    ("GET", OBJECT + "?prefix=a", "list", ""),
    ("DELETE", OBJECT + "/a", "delete", "a"),
    ("PATCH", OBJECT + "/a", "patch", "a"),
    ("PUT", OBJECT + "/a", "patch", "a"),
    ("POST", OBJECT + "/a%2Fc/compose", "compose", "a/c"),
    ("POST", OBJECT + "/a/copyTo/b/{0}/o/c%2Fd", "copy", "c/d"),
    ("POST", OBJECT + "/a/rewriteTo/b/{0}/o/c", "rewrite", "c"),
    ("POST", UPLOAD + "?uploadType=media&name=%C3%BC", "upload", "ü"),
    ("POST", UPLOAD + "?uploadType=resumable&name=u", "upload", "u"),
    ("PUT", UPLOAD + "?uploadType=resumable&name=u&upload_id=x", "upload", "u"),
    ("POST", "/batch/storage/v1", "batch", ""),
    ("GET", "/storage/v1/b/{0}", "bucket.get", ""),
    ("PATCH", "/storage/v1/b/{0}", "bucket.patch", ""),
    ("DELETE", "/storage/v1/b/{0}", "bucket.delete", ""),
    ("GET", "/storage/v1/b?project=p", "bucket.list", ""),
    ("POST", "/storage/v1/b?project=p", "bucket.create", ""),
    ("GET", "/storage/v1/projects/p/serviceAccount", "other", ""),
    ("GET", "/{0}/a/b", "download", "a/b"),
    ("HEAD", "/{0}/a", "get", "a"),
    ("PUT", "/{0}/a", "upload", "a"),
    ("POST", "/{0}/a?uploads", "upload", "a"),
    ("PUT", "/{0}/a?partNumber=1&uploadId=x", "upload", "a"),
    ("DELETE", "/{0}/a?uploadId=x", "upload", "a"),
    ("DELETE", "/{0}/a", "delete", "a"),
    ("GET", "/{0}?prefix=a", "list", ""),
    ("HEAD", "/{0}", "bucket.get", ""),
]


def test_what_requests_are_for(fake_gcs: FakeGcs, gcs_bucket: str) -> None:
    for method, path, operation, name in REQUESTS:
        fake_gcs.clear()
        fake_gcs.fail(418, on=operation if operation != "other" else "")
        with pytest.raises(urllib.error.HTTPError, match="418"):
            ask(fake_gcs, method, path.format(gcs_bucket), b"" if method in ("POST", "PUT") else None)
        (request,) = fake_gcs.requests
        assert (request.operation, request.object, request.status) == (operation, name, 418), (method, path)
        assert request.bucket == (gcs_bucket if "{0}" in path else ""), (method, path)


def test_a_name_that_only_the_body_has(fake_gcs: FakeGcs, gcs_bucket: str) -> None:
    fake_gcs.fail(503, match="from/the \N{SNOWMAN} body")
    resource = json.dumps({"contentType": "text/plain", "name": "from/the \N{SNOWMAN} body"})
    body = f"--b\r\nContent-Type: application/json\r\n\r\n{resource}\r\n--b\r\n\r\nx\r\n--b--".encode()
    path = f"/upload/storage/v1/b/{gcs_bucket}/o?uploadType=multipart"
    headers = {"Content-Type": "multipart/related; boundary=b"}
    with pytest.raises(urllib.error.HTTPError, match="503"):
        ask(fake_gcs, "POST", path, body, headers)
    assert json.loads(ask(fake_gcs, "POST", path, body, headers))["name"] == "from/the \N{SNOWMAN} body"


def test_conditions_and_clients_are_recorded(fake_gcs: FakeGcs, bucket: str) -> None:
    ask(fake_gcs, "GET", f"/storage/v1/b/{bucket}/o/a?ifGenerationNotMatch=0", headers={"User-Agent": "someone"})
    ask(fake_gcs, "PUT", f"/{bucket}/c", b"c", {"x-goog-if-generation-match": "0"})
    first, second = fake_gcs.requests
    assert (first.user_agent, first.conditions) == ("someone", {"ifGenerationNotMatch": "0"})
    assert second.conditions == {"x-goog-if-generation-match": "0"}


def test_wrong_arguments(fake_gcs: FakeGcs) -> None:
    with pytest.raises(ValueError, match="on='write' is not an operation: one of list, get"):
        fake_gcs.fail(503, on="write")
    with pytest.raises(ValueError, match="the status of an error is 400 to 599"):
        fake_gcs.fail(200)
    with pytest.raises(ValueError, match=r"match='a\[b': Invalid glob 'a\[b': a bracket is not closed"):
        fake_gcs.reset(match="a[b")
    with pytest.raises(ValueError, match=r"gcs.fail\(503, bytes=-1\): a number must not be negative"):
        fake_gcs.fail(503, bytes=-1)
    with pytest.raises(ValueError, match=r"gcs.lose\(bytes=5\): it takes no bytes"):
        fake_gcs.lose(bytes=5)
    with pytest.raises(ValueError, match="times=0: a fault happens at least once, or always with None"):
        fake_gcs.lose(times=0)
    with pytest.raises(ValueError, match=r"slow\(bytes_per_second=0\): it must be more than 0"):
        fake_gcs.slow(bytes_per_second=0)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("lose"), "gcs.lose()"),
        (Fault("reset", 5, times=None), "gcs.reset(bytes=5, times=None)"),
        (Fault("slow", 1e6, on="upload", after=2), "gcs.slow(bytes_per_second=1e+06, on='upload', after=2)"),
    ],
)
def test_faults_are_told_as_they_are_written(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_each_test_begins_clean_and_every_fault_has_to_be_met(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import urllib.request

        def ask(fake_gcs, path):
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            direct.open(fake_gcs.endpoint + path).close()

        def test_unmet(fake_gcs, gcs_tree):
            gcs_tree({"a/b": "text"})
            fake_gcs.fail(503, on="list")

        def test_clean(fake_gcs):
            assert fake_gcs.buckets() == []
            assert fake_gcs.requests == []
            fake_gcs.reset(optional=True)

        def test_met_too_rarely(fake_gcs, gcs_tree):
            bucket = gcs_tree({"a": "text"}).removeprefix("gs://")
            fake_gcs.stall(0, on="list", times=3)
            fake_gcs.stall(0, on="download", match="a", times=None)
            fake_gcs.truncate(bytes=4, on="download")  # cuts nothing: there are no more bytes
            ask(fake_gcs, f"/storage/v1/b/{bucket}/o")
            ask(fake_gcs, f"/storage/v1/b/{bucket}/o/a?alt=media")

        def test_met_as_often_as_they_are_for(fake_gcs, gcs_bucket):
            fake_gcs.stall(0, on="list", times=2)
            fake_gcs.stall(0, on="bucket.get", times=None)
            fake_gcs.reset(on="list", after=1, optional=True)
            for path in ("/o", "", "", "/o"):
                ask(fake_gcs, f"/storage/v1/b/{gcs_bucket}{path}")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        [
            "gcs.fail(503, on='list') was not hit (requests: none)",
            "optional=True allows that",
            "gcs.stall(0, on='list', times=3) was hit 1 of 3 times (requests: 1 download, 1 list)",
            "gcs.truncate(bytes=4, on='download') was not hit (requests: 1 download, 1 list)",
            "optional=True allows that",
        ]
    )


def test_a_folder_and_its_clients(fake_gcs: FakeGcs, gcs_tree: Callable[[Path], str], tmp_path: Path) -> None:
    storage = pytest.importorskip("google.cloud.storage")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"\x00 body")
    url = gcs_tree(tmp_path)
    blob = storage.Client().bucket(url.removeprefix("gs://")).blob("sub/file")
    assert blob.download_as_bytes() == b"\x00 body"
    downloads = [r for r in fake_gcs.requests if r.operation == "download"]  # some versions also ask for the bucket
    assert [(r.object, r.status, r.sent) for r in downloads] == [("sub/file", 200, 6)]


def test_an_early_import_of_gcsfs_is_told(pytester: pytest.Pytester) -> None:
    package = pytester.mkpydir("gcsfs")
    package.joinpath("__init__.py").write_text("from gcsfs.extended_gcsfs import GCSFileSystem")
    package.joinpath("extended_gcsfs.py").write_text("class GCSFileSystem: pass")
    pytester.makepyfile("import gcsfs\n\ndef test(fake_gcs):\n    pass")
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*set GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT=false for pytest, or import gcsfs in tests*"])
