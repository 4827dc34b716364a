"""Fields that HTTP's headers cannot hold as they are: JSON keeps them, and headers show them quoted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from serving_storage import ask, make_bucket

from t5x_harness.google.session import EmulatedCloud

FIELDS: dict[str, Any] = {
    "contentType": "text/\u2603",
    "cacheControl": "private\r\nx-injected: 1",
    "contentDisposition": 'attachment; filename="\u00fc"',
    "metadata": {"\u00fc": "\u2603", "with space": "two\nlines", "a:b": " padded ", "empty": ""},
}


@pytest.fixture
def session() -> Iterator[EmulatedCloud]:
    with EmulatedCloud() as running:
        make_bucket(running)
        yield running


def test_odd_fields(session: EmulatedCloud) -> None:
    resource = json.dumps({"name": "odd", **FIELDS}).encode()
    related = b"--b\r\nContent-Type: application/json\r\n\r\n" + resource + b"\r\n--b\r\n\r\nbody\r\n--b--"
    content = {"Content-Type": "multipart/related; boundary=b"}
    ask(session, "POST", "/upload/storage/v1/b/bucket/o?uploadType=multipart", related, content)
    shown = json.loads(ask(session, "GET", "/storage/v1/b/bucket/o/odd")[2])
    assert FIELDS.items() <= shown.items()
    status, headers, body = ask(session, "GET", "/bucket/odd")
    assert (status, body) == (200, b"body")
    assert "x-injected" not in headers
    told = {name: headers[name].encode("latin-1").decode() for name in headers}
    assert told["content-type"] == "text/\u2603"
    assert told["cache-control"] == "private%0D%0Ax-injected: 1"
    assert told["content-disposition"] == 'attachment; filename="\u00fc"'
    assert {name: value for name, value in told.items() if name.startswith("x-goog-meta-")} == {
        "x-goog-meta-%c3%bc": "\u2603",
        "x-goog-meta-with%20space": "two%0Alines",
        "x-goog-meta-a%3ab": "padded",
        "x-goog-meta-empty": "",
    }
