"""gRPC behind its relay: no byte is lost, either side ends both, and only clients of the relay get answers."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

pytest.importorskip("grpc", reason="needs the extra vertex")

from t5x_harness.google.server.tunnel import relay
from t5x_harness.google.server.vertex_endpoint import GrpcService

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
DATA = bytes(range(256)) * (4 << 12)  # 4 MB


@asynccontextmanager
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
    import grpc

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
    import grpc

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
