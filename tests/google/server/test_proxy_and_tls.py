"""The proxy ends TLS for Google's hosts alone, and behind it, gRPC loses no byte and answers no other client."""

import asyncio
import contextlib
import gc
import hashlib
import http.client
import json
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import grpc
import pytest

from t5x_harness.google.server.tunnel import relay
from t5x_harness.google.server.vertex_endpoint import GrpcService
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


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
DATA = bytes(range(256)) * (4 << 12)  # 4 MB


@contextlib.asynccontextmanager
async def relayed(
    handler: Handler, *, late: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connects to a handler through a relay."""
    behind = await asyncio.start_server(handler, "127.0.0.1", 0)

    async def port() -> int:
        if late:
            await asyncio.sleep(0.05)
        return int(behind.sockets[0].getsockname()[1])

    front = await asyncio.get_running_loop().create_server(lambda: relay(port), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.sockets[0].getsockname()[1])
    try:
        yield reader, writer
    finally:
        writer.close()
        front.close()
        behind.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_bytes_arrive_both_ways_also_while_the_port_is_asked_for() -> None:
    async def run() -> str:
        async with relayed(echo, late=True) as (reader, writer):
            sending = asyncio.create_task(_send(writer, DATA))
            received = await reader.readexactly(len(DATA))
            await sending
            return hashlib.sha256(received).hexdigest()

    assert asyncio.run(run()) == hashlib.sha256(DATA).hexdigest()


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def test_a_side_that_does_not_read_stops_the_other() -> None:
    async def run() -> tuple[bool, int]:
        go_on, received = asyncio.Event(), 0

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal received
            await go_on.wait()
            received = len(await reader.readexactly(16 * len(DATA)))
            writer.close()

        async with relayed(slow) as (reader, writer):
            sending = asyncio.create_task(_send(writer, DATA * 16))
            done, _ = await asyncio.wait([sending], timeout=1)
            stopped = not done  # otherwise, 64 MB would be in memory
            go_on.set()
            await sending
            assert await reader.read() == b""
            return stopped, received

    assert asyncio.run(run()) == (True, 16 * len(DATA))


def test_an_end_of_either_side_is_one_of_both() -> None:
    async def run() -> bytes:
        async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"bye")
            writer.close()

        async with relayed(leave) as (reader, _):
            return await reader.read()

    assert asyncio.run(run()) == b"bye"


def test_without_anybody_behind_it_is_closed_and_that_is_all() -> None:
    async def run() -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(str(context["message"])))

        async def nobody() -> int:
            raise OSError("nobody is there")

        front = await asyncio.get_running_loop().create_server(lambda: relay(nobody), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", front.sockets[0].getsockname()[1])
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            front.close()
            gc.collect()  # makes asyncio report exceptions that were not handled

    unhandled: list[str] = []
    assert asyncio.run(run()) == b""
    assert unhandled == []


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
NO_ERROR = 0


def frame(kind: int, flags: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + bytes(4) + payload


async def told_until_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[int]:
    """Returns the error codes that a slow client gets when the service ends."""
    codes = []
    try:
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == PING and not head[4]:
                await asyncio.sleep(0.1)
                writer.write(frame(PING, 1, payload))
            elif head[3] == GOAWAY:
                codes.append(int.from_bytes(payload[4:8], "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return codes


def test_the_port_behind_the_relay_answers_nobody_else() -> None:
    async def status() -> tuple[grpc.StatusCode, str]:
        service = GrpcService(cast(Any, None))  # is never called
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await service.port()}") as channel:
            call = channel.unary_unary("/google.cloud.aiplatform.v1.JobService/CreateCustomJob")(b"")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
        await service.stop()
        return caught.value.code(), str(caught.value.details())

    assert asyncio.run(status()) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "t5x-harness: this port is only for its own server",
    )


def test_nor_one_with_a_relay_s_port_at_another_address_of_the_loopback_interface() -> None:
    """Every user can read the ports of relays in /proc/net/tcp."""

    async def status() -> grpc.StatusCode:
        service = GrpcService(cast(Any, None))  # is never called
        port = await service.port()
        with socket.socket() as free:
            free.bind(("127.0.0.2", 0))
            number = free.getsockname()[1]
        service.hosts[number] = "us-central1-aiplatform.googleapis.com"

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", number))

            async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
                while data := await source.read(1 << 16):
                    to.write(data)
                to.close()

            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer), return_exceptions=True)

        async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
            address = "127.0.0.1:{1}".format(*server.sockets[0].getsockname())
            async with grpc.aio.insecure_channel(address) as channel:
                call = channel.unary_unary("/google.cloud.aiplatform.v1.JobService/CreateCustomJob")(b"")
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
            await service.stop()
        return caught.value.code()

    assert asyncio.run(status()) == grpc.StatusCode.PERMISSION_DENIED


def test_clients_without_a_call_are_sent_off_without_an_error() -> None:
    async def codes() -> list[int]:
        service = GrpcService(cast(Any, None))  # is never called
        reader, writer = await asyncio.open_connection("127.0.0.1", await service.port())
        writer.write(PREFACE + frame(SETTINGS, 0))
        assert (await reader.readexactly(9))[3] == SETTINGS
        await reader.readuntil(frame(SETTINGS, 1))  # the service accepts this connection
        told = asyncio.create_task(told_until_the_end(reader, writer))
        await service.stop()
        writer.close()
        return await told

    assert set(asyncio.run(codes())) == {NO_ERROR}
