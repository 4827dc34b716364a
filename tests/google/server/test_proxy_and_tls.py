"""The proxy ends TLS for Google's hosts, distinguishes HTTP/1.1 and gRPC, and refuses every other host."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import ssl
import sys

import grpc
import pytest

from t5x_harness.google.session import EmulatedCloud

REFUSED = (
    "t5x-harness refuses {}: only Google's API hosts are emulated here (*.googleapis.com), "
    "and nothing passes through to the network"
)


def _ask_proxy(google: EmulatedCloud, request: bytes) -> bytes:
    """Returns the proxy's answer until it closes the connection."""
    with socket.create_connection(("127.0.0.1", google.endpoints.proxy)) as connection:
        connection.settimeout(60)
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def _tunnel(google: EmulatedCloud, alpn: list[str]) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", google.endpoints.proxy))
    raw.settimeout(60)
    raw.sendall(b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\nHost: storage.googleapis.com:443\r\n\r\n")
    assert raw.recv(4096) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    context = ssl.create_default_context(cafile=str(google.endpoints.folder / "ca.pem"))
    if alpn:
        context.set_alpn_protocols(alpn)
    return context.wrap_socket(raw, server_hostname="storage.googleapis.com")


@pytest.mark.parametrize(
    ("alpn", "agreed"), [([], None), (["http/1.1"], "http/1.1"), (["h2", "http/1.1"], "http/1.1"), (["h2"], "h2")]
)
def test_only_who_offers_nothing_but_h2_gets_it(google: EmulatedCloud, alpn: list[str], agreed: str | None) -> None:
    with _tunnel(google, alpn) as tls:
        assert tls.selected_alpn_protocol() == agreed
        if agreed == "h2":
            tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\0\0\0\0\0")  # preface, empty settings
            assert tls.recv(9)[3:4] == b"\x04"  # the server's settings
        else:
            tls.sendall(b"GET /x HTTP/1.1\r\nHost: storage.googleapis.com\r\n\r\n")
            assert tls.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("size", [1, 5, 40])
def test_the_request_for_a_tunnel_may_come_in_pieces(google: EmulatedCloud, size: int) -> None:
    request = b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", google.endpoints.proxy)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(request), size):
            connection.sendall(request[start : start + size])
        connection.settimeout(60)
        assert connection.recv(4096).startswith(b"HTTP/1.1 403 t5x-harness refuses example.org:443")


@pytest.mark.parametrize(
    "target", ["example.org:443", "evilgoogleapis.com:443", "127.0.0.1:443", "storage.googleapis.com:80"]
)
def test_other_hosts_and_ports_get_no_tunnel(google: EmulatedCloud, target: str) -> None:
    before = google.refused().get(target, 0)
    answer = _ask_proxy(google, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 403 {REFUSED.format(target)}\r\n")
    assert body == f"{REFUSED.format(target)}\n"
    assert google.refused()[target] == before + 1


def test_plain_requests_for_other_hosts_are_refused(google: EmulatedCloud) -> None:
    answer = _ask_proxy(google, b"GET http://example.net/x?y=1 HTTP/1.1\r\nHost: example.net\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 403 {REFUSED.format('example.net')}\r\n".encode())
    assert answer.endswith(f"\r\n\r\n{REFUSED.format('example.net')}\n".encode())
    assert google.refused()["example.net"] == 1


def test_plain_requests_for_googles_hosts_are_answered(google: EmulatedCloud) -> None:
    proxy = http.client.HTTPConnection("127.0.0.1", google.endpoints.proxy, timeout=60)
    for path in ("/b/a%2Fc?alt=json", ""):
        proxy.request("GET", f"http://storage.googleapis.com{path}", headers={"Host": "wrong.example"})
        answer = json.load(proxy.getresponse())
        assert answer["raw_path"] == (path.partition("?")[0] or "/")
        assert [v for k, v in answer["headers"] if k == "host"] == ["storage.googleapis.com"]
    proxy.close()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (b"CONNECT storage.googleapis.com HTTP/1.1\r\n\r\n", b"CONNECT takes HOST:PORT"),
        (b"CONNECT storage.googleapis.com:port HTTP/1.1\r\n\r\n", b"CONNECT takes HOST:PORT"),
        (b"CONNECT :443 HTTP/1.1\r\n\r\n", b"CONNECT takes HOST:PORT"),
        (b"CONNECT storage.googleapis.com:443\r\n\r\n", b"CONNECT takes HOST:PORT"),
        (
            b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n\r\n\x16\x03",
            b"data arrived before the tunnel was established",
        ),
        (b"CONNECT " + b"x" * 70_000, b"a request of more than 65536 bytes"),
    ],
)
def test_what_is_no_request_for_a_tunnel(google: EmulatedCloud, request_: bytes, message: bytes) -> None:
    answer = _ask_proxy(google, request_)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert message in answer


def test_what_is_no_tls_in_a_tunnel_ends_it(google: EmulatedCloud) -> None:
    with socket.create_connection(("127.0.0.1", google.endpoints.proxy)) as raw:
        raw.settimeout(60)
        raw.sendall(b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200 ")
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in raw.recv(4096)
    with _tunnel(google, []) as tls:  # and other connections continue
        assert tls.version() == "TLSv1.3"


def test_grpc_is_refused_at_once_naming_the_method(google: EmulatedCloud) -> None:
    authority = (google.endpoints.folder / "ca.pem").read_bytes()
    over_tls = grpc.secure_channel(f"localhost:{google.endpoints.tls}", grpc.ssl_channel_credentials(authority))
    for channel in (over_tls, grpc.insecure_channel(f"127.0.0.1:{google.endpoints.grpc}")):
        with channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/google.storage.control.v2.StorageControl/GetStorageLayout")(b"", timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert caught.value.details() == (
            "t5x-harness does not emulate /google.storage.control.v2.StorageControl/GetStorageLayout: "
            "over gRPC only Vertex AI is emulated; Cloud Storage is, over its JSON and XML APIs"
        )


def test_grpc_finds_its_way_through_the_proxy(client) -> None:
    program = """
import grpc
channel = grpc.secure_channel("cloudresourcemanager.googleapis.com:443", grpc.ssl_channel_credentials())
try:
    channel.unary_stream("/google.cloud.resourcemanager.v3.Projects/GetProject")(b"x" * 1_000_000, timeout=60).next()
except grpc.RpcError as error:
    print(error.code().name, error.details())
"""
    done = client(sys.executable, "-c", program)
    assert done.stdout.startswith("UNAUTHENTICATED Request had invalid authentication credentials."), done.stderr


def test_requests_meets_the_session_alone(client) -> None:
    program = """
import requests
print(requests.get("https://storage.googleapis.com/b/o").json()["scheme"])
try:
    requests.get("https://example.org/")
except requests.exceptions.ProxyError as error:
    print(error)
"""
    done = client(sys.executable, "-c", program)
    scheme, error = done.stdout.splitlines()
    assert scheme == "https"
    assert REFUSED.format("example.org:443") in error


def test_a_client_that_ignores_the_proxy_trusts_no_other_server(client) -> None:
    """Only the session's CA is trusted, so a client that bypasses the proxy fails."""
    program = "import ssl; print(*{c['subject'][0][0][1] for c in ssl.create_default_context().get_ca_certs()})"
    assert client(sys.executable, "-c", program).stdout == "t5x-harness session CA\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_follows_the_environment(client) -> None:
    done = client("curl", "-sS", "-T", "-", "https://storage.googleapis.com/upload")
    assert (json.loads(done.stdout)["method"], done.stderr) == ("PUT", "")
    refused = client("curl", "-sS", "http://example.org/")
    assert refused.stdout == f"{REFUSED.format('example.org')}\n"
