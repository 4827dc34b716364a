"""Faults reach clients as they would from outside, and requests are recorded."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

import pytest

pytest.importorskip("uvicorn", reason="the extra google is not installed")

from t5x_harness.google.gcs import FakeGcs


def read(gcs: FakeGcs, bucket: str, name: str = "a") -> bytes:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{gcs.endpoint}/storage/v1/b/{bucket}/o/{name}?alt=media", timeout=30) as answer:
        body: bytes = answer.read()
    return body


@pytest.fixture
def bucket(fake_gcs: FakeGcs, gcs_bucket: str) -> str:
    fake_gcs.put(gcs_bucket, {"a": "0123456789", "b": "b"})
    return gcs_bucket


def test_fail_counts_and_matches(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.fail(503, on="download", match="a*", times=1, after=1)
    assert read(fake_gcs, bucket) == b"0123456789"
    assert read(fake_gcs, bucket, "b") == b"b"
    with pytest.raises(urllib.error.HTTPError, match="503"):
        read(fake_gcs, bucket)
    assert read(fake_gcs, bucket) == b"0123456789"
    told = [(r.operation, r.object, r.status, r.sent, r.fault) for r in fake_gcs.requests]
    assert told[:2] == [("download", "a", 200, 10, ""), ("download", "b", 200, 1, "")]
    assert told[2][:3] == ("download", "a", 503)
    assert told[2][4] == "fail"


def test_reset(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.reset(on="download")
    with pytest.raises((ConnectionResetError, urllib.error.URLError), match="reset"):
        read(fake_gcs, bucket)


def test_truncate(fake_gcs: FakeGcs, bucket: str) -> None:
    fake_gcs.truncate(bytes=4, on="download")
    with pytest.raises(http.client.IncompleteRead) as caught:
        read(fake_gcs, bucket)
    assert caught.value.partial == b"0123"


@pytest.mark.parametrize("kind", ["stall", "slow"])
def test_late_answers_are_whole(fake_gcs: FakeGcs, bucket: str, kind: str) -> None:
    if kind == "stall":
        fake_gcs.stall(0.2, on="download")
    else:
        fake_gcs.slow(bytes_per_second=50, on="download")
    assert read(fake_gcs, bucket) == b"0123456789"  # and a fault that is not met fails the test at its end


def test_the_real_client_tries_again(fake_gcs: FakeGcs, gcs_bucket: str) -> None:
    storage = pytest.importorskip("google.cloud.storage")
    fake_gcs.fail(503, on="upload", match="ckpt/**", times=2)
    blob = storage.Client().bucket(gcs_bucket).blob("ckpt/x")
    blob.upload_from_string(b"x", if_generation_match=0)
    uploads = [r for r in fake_gcs.requests if r.operation == "upload"]
    assert [(r.object, r.status) for r in uploads] == [("ckpt/x", 503), ("ckpt/x", 503), ("ckpt/x", 200)]
    assert uploads[2].conditions == {"ifGenerationMatch": "0"}


def test_wrong_arguments(fake_gcs: FakeGcs) -> None:
    with pytest.raises(ValueError, match="on='write' is no operation: one of list, get"):
        fake_gcs.fail(503, on="write")
    with pytest.raises(ValueError, match="the status of an error is 400 to 599"):
        fake_gcs.fail(200)
