"""The tokens that clients get, the access of the session's own token, the metadata server, and refused requests."""

import base64
import http.client
import json
import sys
import time
import urllib.parse
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from google.auth import jwt

from t5x_harness.google.identity import Authority, bearer
from t5x_harness.google.server.process import make_service_key
from t5x_harness.google.session import EmulatedCloud

JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN = {"access_token": "fake", "expires_in": 3600, "token_type": "Bearer"}


def _ask(google: EmulatedCloud, method: str, host: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", google.endpoints.http, timeout=60)
    sent = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request(method, path, body, sent)
    answer = connection.getresponse()
    status, text = answer.status, answer.read().decode()
    connection.close()
    return status, text


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("oauth2.googleapis.com", "/token"),
        ("oauth2.googleapis.com:443", "/token"),
        ("www.googleapis.com", "/oauth2/v4/token"),
        ("accounts.google.com", "/o/oauth2/token"),
        ("127.0.0.1", "/_t5x_harness/token"),
    ],
)
@pytest.mark.parametrize("grant", [JWT, "refresh_token"])
def test_a_token_for_everybody(google: EmulatedCloud, host: str, path: str, grant: str) -> None:
    status, text = _ask(google, "POST", host, path, urllib.parse.urlencode({"grant_type": grant, "assertion": "x"}))
    assert (status, json.loads(text)) == (200, TOKEN)


@pytest.mark.parametrize("body", ["grant_type=password", "", "grant_type=%E9"])
def test_a_request_that_is_none_for_a_token(google: EmulatedCloud, body: str) -> None:
    status, text = _ask(google, "POST", "oauth2.googleapis.com", "/token", body)
    assert status == 400
    assert json.loads(text)["error"] == "unsupported_grant_type"


@pytest.mark.parametrize("body", ["x" * (2 << 20), "grant_type=\u00e9"], ids=["2 MB", "no UTF-8"])
def test_a_body_that_cannot_be_a_form_is_refused(google: EmulatedCloud, body: str) -> None:
    status, text = _ask(google, "POST", "oauth2.googleapis.com", "/token", body)
    assert (status, json.loads(text)["error"]) == (400, "invalid_request")


def test_the_path_of_a_token_is_a_bucket_elsewhere(google: EmulatedCloud) -> None:
    for host in ("storage.googleapis.com", "127.0.0.1"):
        status, text = _ask(google, "POST", host, "/token", f"grant_type={JWT}")
        assert (status, json.loads(text)["path"]) == (200, "/token")


def _metadata(google: EmulatedCloud, path: str, host: str = "metadata.google.internal") -> tuple[int, str]:
    return _ask(google, "GET", host, f"/computeMetadata/v1/{path}", Metadata_Flavor="Google")


@pytest.mark.parametrize("host", ["metadata.google.internal", "169.254.169.254", "127.0.0.1:8000"])
def test_the_metadata_server(google: EmulatedCloud, host: str) -> None:
    assert _metadata(google, "project/project-id", host) == (200, "t5x-harness")
    status, text = _metadata(google, "instance/service-accounts/default/token?scopes=a", host)
    assert (status, json.loads(text)) == (200, TOKEN)
    status, text = _metadata(google, "instance/service-accounts/default/?recursive=true", host)
    assert json.loads(text)["email"] == "t5x-harness@t5x-harness.iam.gserviceaccount.com"
    assert _metadata(google, "project", host) == (200, "numeric-project-id\nproject-id\n")
    assert _metadata(google, "instance/attributes/tpu-env", host)[0] == 404


def test_the_metadata_server_wants_its_header(google: EmulatedCloud) -> None:
    status, text = _ask(google, "GET", "metadata.google.internal", "/computeMetadata/v1/project/project-id")
    assert status == 403
    assert json.loads(text)["error"]["message"] == "Missing Metadata-Flavor:Google header."


def test_trust_boundaries_are_not_there(google: EmulatedCloud) -> None:
    path = "/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com/allowedLocations"
    assert _ask(google, "GET", "iamcredentials.googleapis.com", path)[0] == 404


@pytest.mark.parametrize(
    ("host", "path"), [("pubsub.googleapis.com", "/v1/projects/p/topics"), ("www.googleapis.com", "/drive/v3/files")]
)
def test_other_apis_say_that_they_are_not_emulated(google: EmulatedCloud, host: str, path: str) -> None:
    status, text = _ask(google, "GET", host, path)
    assert status == 403  # clients retry after a 501
    error = json.loads(text)["error"]
    assert (error["status"], error["details"][0]["reason"]) == ("PERMISSION_DENIED", "SERVICE_DISABLED")
    assert error["message"] == (
        f"t5x-harness does not emulate GET {host}{path}; Cloud Storage, Vertex AI's training, TPU VMs and tokens are "
        "emulated"
    )


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("storage.googleapis.com", "/storage/v1/b"),
        ("bucket.storage.googleapis.com", "/object"),
        ("commondatastorage.googleapis.com", "/bucket/object"),
        ("www.googleapis.com", "/storage/v1/b/bucket"),
        ("www.googleapis.com", "/upload/storage/v1/b/bucket/o"),
        ("www.googleapis.com", "/batch/storage/v1"),
        ("localhost:8000", "/storage/v1/b"),
        ("127.1.2.3:8000", "/bucket/object"),
        ("[::1]:8000", "/bucket/object"),
    ],
)
def test_what_is_of_storage_goes_there(google: EmulatedCloud, host: str, path: str) -> None:
    status, text = _ask(google, "GET", host, path)
    assert (status, json.loads(text)["path"]) == (200, path)


@pytest.mark.parametrize("host", ["gcr.io", "eu.gcr.io", "us-docker.pkg.dev"])
def test_registries_of_images_refuse_in_their_own_form(google: EmulatedCloud, host: str) -> None:
    assert _ask(google, "GET", host, "/v2/") == (200, "{}")
    status, text = _ask(google, "PUT", host, "/v2/p/image/manifests/latest")
    (error,) = json.loads(text)["errors"]
    assert (status, error["code"]) == (403, "DENIED")
    assert error["message"] == (
        f"t5x-harness does not emulate PUT {host}/v2/p/image/manifests/latest: images are neither kept nor run here; "
        "a job's image stands for a command, see --vertex-image"
    )
    status, text = _ask(google, "GET", host, "/v2/p/image/manifests/latest")
    (error,) = json.loads(text)["errors"]
    assert (status, error["code"]) == (404, "MANIFEST_UNKNOWN")
    assert error["message"] == (
        f"t5x-harness has no image {host}/p/image:latest: it has those that --vertex-image, or images of "
        "VertexOptions, names"
    )


@pytest.mark.parametrize("host", ["evil.example:8000", "some-host", "192.168.1.7", "127.0.0.1.evil.example", "[::2]:1"])
@pytest.mark.parametrize(
    "path", ["/storage/v1/b", "/computeMetadata/v1/project/", "/v1/projects/p", "/_t5x_harness/token"]
)
def test_another_name_that_leads_here_is_refused(google: EmulatedCloud, host: str, path: str) -> None:
    """A page may point its own domain at 127.0.0.1, and then read the answers."""
    status, text = _ask(google, "POST", host, path)
    assert (status, json.loads(text)["error"]["message"]) == (
        403,
        f"t5x-harness: {host} is neither Google's nor a name of this machine's loopback interface: use 127.0.0.1 "
        "or localhost",
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("host", ["127.0.0.1:8000", "storage.googleapis.com"])
def test_pages_of_other_sites_may_ask_nothing(google: EmulatedCloud, host: str, headers: dict[str, str]) -> None:
    path = "/upload/storage/v1/b/stage/o?uploadType=media&name=pkg.tar.gz"
    status, text = _ask(google, "POST", host, path, "evil", Content_Type="text/plain", **headers)
    assert status == 403
    asking = headers.get("Origin", "another site")
    assert f"a page of {asking} sent this request, and pages of other sites may not" in text


@pytest.mark.parametrize("headers", [{"Origin": "http://localhost:8000"}, {"Sec-Fetch-Site": "none"}], ids=str)
def test_an_address_that_the_user_typed_is_answered_and_taken_for_what_it_says(
    google: EmulatedCloud, headers: dict[str, str]
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", google.endpoints.http, timeout=60)
    connection.request("GET", "/bucket/object", headers={"Host": "localhost:8000", **headers})
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("X-Content-Type-Options")) == (200, "nosniff")
    connection.close()


def test_google_auth_gets_the_sessions_token_by_key_and_the_public_one_by_metadata(client, google) -> None:
    pytest.importorskip("google.auth", reason="google-auth is not installed")
    program = """
import google.auth, google.auth.compute_engine
from google.auth.transport.requests import Request
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
machine = google.auth.compute_engine.Credentials()
for each in (credentials, machine):
    each.refresh(Request())
    print(type(each).__module__, each.token, each.service_account_email)
print(project)
"""
    done = client(sys.executable, "-c", program)
    email = "t5x-harness@t5x-harness.iam.gserviceaccount.com"
    secret = (google.endpoints.folder / "token").read_text()
    assert len(secret) >= 32
    assert done.stdout.splitlines() == [
        f"google.oauth2.service_account {secret} {email}",
        f"google.auth.compute_engine.credentials fake {email}",
        "t5x-harness",
    ], done.stderr


@pytest.fixture(scope="module")
def key() -> bytes:
    return make_service_key()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _signed(key: bytes, header: Any = None, **claims: Any) -> str:
    now = time.time()
    told = {"iss": "t5x-harness", "iat": now, "exp": now + 3600, **claims}
    parts = [_encoded(json.dumps(part).encode()) for part in (header or {"alg": "RS256", "typ": "JWT"}, told)]
    private: Any = serialization.load_pem_private_key(key, password=None)
    signature = private.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
    return ".".join([*parts, _encoded(signature)])


def test_the_sessions_token_is_random_and_admits() -> None:
    one, other = Authority(), Authority()
    assert one.token != other.token
    assert len(one.token) >= 32
    assert one.admits(one.token)
    assert not one.admits(other.token)


def test_what_the_sessions_key_signed_admits_and_is_verified_once(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(key=key)
    verified: list[int] = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *given, **options: verified.append(1) or decode(*given, **options))
    token = _signed(key)
    assert [authority.admits(token) for _ in range(3)] == [True] * 3
    assert len(verified) == 1


def test_what_another_key_signed_does_not(key: bytes) -> None:
    authority = Authority(key=key)
    head, claims, signature = _signed(key).split(".")
    changed = _encoded(json.dumps({"iat": 0, "exp": time.time() + 9999}).encode())
    other = _signed(make_service_key())
    for token in (other, f"{head}.{changed}.{signature}", f"{head}.{claims}.", f"{head}.{claims}"):
        assert not authority.admits(token)


def test_it_has_to_be_good_now_and_of_one_algorithm(key: bytes) -> None:
    for claims in ({"exp": time.time() - 3600}, {"iat": time.time() + 3600}, {"exp": "soon"}, {"exp": None}):
        assert not Authority(key=key).admits(_signed(key, **claims)), claims
    for header in ({"alg": "none"}, {"alg": "HS256"}, {"typ": "JWT"}, ["RS256"], "RS256"):
        assert not Authority(key=key).admits(_signed(key, header)), header


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "é.é.é", "fake", "\0", "e30.e30.e30", "W10.W10.W10"])
def test_what_is_no_token(key: bytes, token: str) -> None:
    assert not Authority(key=key).admits(token)
    assert not Authority().admits(token)


@pytest.mark.parametrize(
    ("header", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("Bearer", ""), ("", ""), ("abc", "")],
)
def test_tokens_in_headers(header: str, token: str) -> None:
    assert bearer(header) == token
