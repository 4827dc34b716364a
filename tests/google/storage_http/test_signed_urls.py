"""Signed URLs by the session's service account: they are good for what was signed, and until they expire."""

import datetime
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the extra google is not installed")
pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")

from serving_storage import make_bucket

from t5x_harness.google.server.process import make_service_key, service_account
from t5x_harness.google.session import EmulatedCloud

BODY = b"0123456789"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCloud]:
    with EmulatedCloud(tmp_path_factory.mktemp("root")) as running:
        make_bucket(running)
        yield running


@pytest.fixture
def blob(session: EmulatedCloud) -> Any:
    from google.cloud import storage
    from google.oauth2 import service_account as accounts

    credentials = accounts.Credentials.from_service_account_file(
        session.environment()["GOOGLE_APPLICATION_CREDENTIALS"]
    )
    options = {"api_endpoint": session.endpoints.url}
    client = storage.Client(project="my-project", credentials=credentials, client_options=options)
    return client.bucket("bucket").blob("a folder/ü")


def sign(blob: Any, method: str = "GET", **options: Any) -> str:
    return str(blob.generate_signed_url(version="v4", expiration=60, method=method, **options))


def ask(url: str, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(urllib.request.Request(url, body, dict(headers or {}), method=method), timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_put_and_get(blob: Any) -> None:
    put = sign(blob, "PUT", content_type="text/x-own", headers={"x-goog-if-generation-match": "0"})
    headers = {"Content-Type": "text/x-own", "x-goog-if-generation-match": "0"}
    assert ask(put, "PUT", BODY, headers)[0] == 200
    assert ask(put, "PUT", BODY, headers)[0] == 412
    status, told, body = ask(sign(blob, query_parameters={"a b": "~/c d"}))
    assert (status, told["Content-Type"], body) == (200, "text/x-own", BODY)
    as_file = sign(blob, response_type="text/html", response_disposition='attachment; filename="ü"')
    _, told, body = ask(as_file)
    assert (told["Content-Type"], body) == ("text/html", BODY)
    assert told["Content-Disposition"].encode("latin-1").decode() == 'attachment; filename="ü"'


def test_a_resumable_upload_needs_the_signature_only_to_begin(blob: Any) -> None:
    status, headers, _ = ask(sign(blob, "RESUMABLE"), "POST", b"", {"x-goog-resumable": "start"})
    assert status == 201
    at, large = headers["Location"], b"x" * (256 << 10)
    assert "Signature" not in at
    size = len(large) + len(BODY)
    status, told, _ = ask(at, "PUT", large, {"Content-Range": f"bytes 0-{len(large) - 1}/{size}"})
    assert (status, told["Range"]) == (308, f"bytes=0-{len(large) - 1}")
    status, told, body = ask(at, "PUT", BODY, {"Content-Range": f"bytes {len(large)}-{size - 1}/{size}"})
    assert (status, body, told["x-goog-stored-content-length"]) == (200, b"", str(size))
    assert ask(sign(blob))[2] == large + BODY


def test_what_was_not_signed_is_refused(blob: Any) -> None:
    assert ask(sign(blob, "PUT", content_type="a/b"), "PUT", BODY, {"Content-Type": "a/b"})[0] == 200
    others = [
        (sign(blob), "PUT", {}),
        (sign(blob).replace("folder", "f"), "GET", {}),
        (f"{sign(blob)}&generation=1", "GET", {}),
        (sign(blob, "PUT", content_type="a/b"), "PUT", {"Content-Type": "a/c"}),
        (sign(blob, "RESUMABLE"), "POST", {}),
    ]
    for url, method, headers in others:
        status, _, body = ask(url, method, BODY if method == "PUT" else None, headers)
        assert (status, b"<Code>SignatureDoesNotMatch</Code>" in body) == (403, True), (url, method)
        assert b"<Details>" + method.encode() in body  # the request as the server has read it


@pytest.mark.parametrize(
    ("ago", "status", "code", "message"),
    [(61, 400, b"ExpiredToken", b"expired at"), (-3600, 400, b"AccessDenied", b"is not good before")],
)
def test_another_time(blob: Any, ago: int, status: int, code: bytes, message: bytes) -> None:
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    answered = ask(re.sub("X-Goog-Date=[^&]*", f"X-Goog-Date={then:%Y%m%dT%H%M%SZ}", sign(blob)))
    assert answered[0] == status
    assert b"<Code>%b</Code>" % code in answered[2]
    assert message in answered[2]


def test_another_key_and_another_way_of_signing(session: EmulatedCloud, blob: Any) -> None:
    from google.oauth2 import service_account as accounts

    other = json.loads(service_account(make_service_key(), "http://127.0.0.1/token"))
    same_name = accounts.Credentials.from_service_account_info(other)
    other_name = accounts.Credentials.from_service_account_info({**other, "client_email": "someone@example.com"})
    assert ask(sign(blob, credentials=same_name))[0] == 403
    status, _, body = ask(sign(blob, credentials=other_name))
    assert status == 403
    assert b"not someone@example.com by GOOG4-RSA-SHA256" in body
    status, _, body = ask(sign(blob).replace("X-Goog-Expires=60", "X-Goog-Expires=x"))
    assert (status, b"X-Goog-Expires or X-Goog-Signature is missing or malformed" in body) == (400, True)
