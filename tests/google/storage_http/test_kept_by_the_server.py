"""The next server has all that a server acknowledged, even if the first one was killed."""

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")

from serving_storage import ask, make_bucket, related, start_resumable

from t5x_harness.google.session import EmulatedCloud

OBJECTS = "/storage/v1/b/bucket/o"
NAMES = ["plain", "a", "a/b", "a//b", "a/", "/", "a/../b", "ü/☃", "tab\t%2F?#", "\0", "x" * 1024, "seg/" + "y" * 300]


@contextlib.contextmanager
def killed_at_the_end(root: Path) -> Iterator[EmulatedCloud]:
    with EmulatedCloud(root) as session:
        yield session
        with contextlib.suppress(ProcessLookupError):
            os.kill(session.endpoints.pid, signal.SIGKILL)


def put_media(session: EmulatedCloud, name: str, body: bytes) -> None:
    path = f"/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(name, safe='')}"
    assert ask(session, "POST", path, body)[0] == 200


def put_xml(session: EmulatedCloud, name: str, body: bytes) -> None:
    assert ask(session, "PUT", f"/bucket/{quote(name, safe='')}", body)[0] == 200


def put_resumable(session: EmulatedCloud, name: str, body: bytes) -> None:
    at, half, size = start_resumable(session, name), len(body) // 2, len(body)
    assert ask(session, "PUT", at, body[:half], {"Content-Range": f"bytes 0-{half - 1}/{size}"})[0] == 308
    assert ask(session, "PUT", at, body[half:], {"Content-Range": f"bytes {half}-{size - 1}/{size}"})[0] == 200


def put_composed(session: EmulatedCloud, name: str, body: bytes) -> None:
    put_media(session, f"{name}.half", body[: len(body) // 2])
    put_media(session, f"{name}.rest", body[len(body) // 2 :])
    sources = {"sourceObjects": [{"name": f"{name}.half"}, {"name": f"{name}.rest"}]}
    path = f"{OBJECTS}/{quote(name, safe='')}/compose"
    assert ask(session, "POST", path, json.dumps(sources).encode())[0] == 200


def put_rewritten(session: EmulatedCloud, name: str, body: bytes) -> None:
    put_media(session, f"{name}.first", body)
    path = f"{OBJECTS}/{quote(f'{name}.first', safe='')}/rewriteTo/b/bucket/o/{quote(name, safe='')}"
    assert ask(session, "POST", path)[0] == 200


WAYS = (put_media, put_xml, put_resumable, put_composed, put_rewritten)


def body_of(index: int) -> bytes:
    return f"{index};".encode() * (1 + index * 7919 % 5000)


def write_until_it_ends(session: EmulatedCloud, worker: int, start: int, enough: threading.Event) -> dict[str, int]:
    """Writes until the server ends; returns, by name, the index of the worker's last write that was acknowledged."""
    acknowledged: dict[str, int] = {}
    for index in itertools.count(start):
        name = f"{worker}/{NAMES[index % len(NAMES)]}"[:1024]
        try:
            WAYS[index % len(WAYS)](session, name, body_of(index))
        except (OSError, http.client.HTTPException):
            return acknowledged
        acknowledged[name] = index
        if len(acknowledged) >= 8:
            enough.set()
    raise AssertionError("never")


def test_a_killed_server_has_lost_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(4)
    with EmulatedCloud(tmp_path) as session:
        make_bucket(session)
    kept: dict[str, int] = {}
    for turn in range(2):
        enough = threading.Event()
        with EmulatedCloud(tmp_path) as session, concurrent.futures.ThreadPoolExecutor() as pool:
            running = [
                pool.submit(write_until_it_ends, session, worker, 10_000 * turn + worker, enough) for worker in range(3)
            ]
            enough.wait(60)
            threading.Event().wait(chance.random() * 0.05)
            os.kill(session.endpoints.pid, signal.SIGKILL)
            for each in running:
                kept |= each.result()
        with EmulatedCloud(tmp_path) as session:
            for name, index in kept.items():
                status, headers, body = ask(session, "GET", f"/bucket/{quote(name, safe='')}")
                assert status == 200, (name, index)
                found = int(body.partition(b";")[0])
                assert body == body_of(found), name
                assert found >= index, name  # a later write may have been stored without an answer
                assert headers["x-goog-stored-content-length"] == str(len(body))
    assert len(kept) >= 16


def test_fields_survive_a_killed_server(tmp_path: Path) -> None:
    resource = {
        "name": "folder/ü",
        "contentType": "text/x",
        "contentLanguage": "de",
        "cacheControl": "no-store",
        "contentDisposition": "inline",
        "customTime": "2026-01-02T03:04:05.000Z",
        "storageClass": "NEARLINE",
        "metadata": {"k": "v", "ü": "☃"},
    }
    path = f"{OBJECTS}/folder%2F%C3%BC"
    with killed_at_the_end(tmp_path) as session:
        make_bucket(session, location="EU", labels={"k": "v"})
        body, content = related(json.dumps(resource).encode(), b"body")
        ask(session, "POST", "/upload/storage/v1/b/bucket/o?uploadType=multipart", body, content)
        ask(session, "PATCH", path, b'{"metadata": {"more": "x"}}')
        put_composed(session, "composed", b"0123456789")
        before = described(session, path)
    assert {**resource, "metadata": {**resource["metadata"], "more": "x"}}.items() <= before[0].items()  # type: ignore[dict-item]
    with EmulatedCloud(tmp_path) as session:
        assert described(session, path) == before
        assert ask(session, "GET", f"{path}?alt=media")[2] == b"body"


def described(session: EmulatedCloud, path: str) -> list[dict[str, Any]]:
    """Returns an object, a composed one and the bucket, without addresses, which contain the server's port."""
    told = [json.loads(ask(session, "GET", p)[2]) for p in (path, f"{OBJECTS}/composed", "/storage/v1/b/bucket")]
    return [{key: value for key, value in each.items() if not key.endswith("Link")} for each in told]


def test_an_upload_goes_on_with_the_next_server(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4096
    with killed_at_the_end(tmp_path) as session:
        make_bucket(session)
        at = start_resumable(session, "r")
        first = {"Content-Range": f"bytes 0-{(1 << 18) - 1}/{len(body)}"}
        assert ask(session, "PUT", at, body[: 1 << 18], first)[0] == 308
        begun = ask(session, "POST", "/bucket/m?uploads", headers={"Content-Type": "text/x"})[2].decode()
        upload = begun.partition("<UploadId>")[2].partition("<")[0]
        status, headers, _ = ask(session, "PUT", f"/bucket/m?uploadId={upload}&partNumber=1", body)
        assert status == 200
    with EmulatedCloud(tmp_path) as session:
        status, told, _ = ask(session, "PUT", at, headers={"Content-Range": f"bytes */{len(body)}"})
        assert (status, told["range"]) == (308, f"bytes=0-{(1 << 18) - 1}")
        rest = {"Content-Range": f"bytes {1 << 18}-{len(body) - 1}/{len(body)}"}
        assert ask(session, "PUT", at, body[1 << 18 :], rest)[0] == 200
        parts = f"<X><Part><PartNumber>1</PartNumber><ETag>{headers['etag']}</ETag></Part></X>".encode()
        assert ask(session, "POST", f"/bucket/m?uploadId={upload}", parts)[0] == 200
        for name in ("r", "m"):
            assert ask(session, "GET", f"/bucket/{name}")[2] == body
        assert ask(session, "HEAD", "/bucket/m")[1]["content-type"] == "text/x"
