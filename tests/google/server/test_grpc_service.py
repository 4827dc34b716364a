"""The gRPC service ends its connections in order, because clients otherwise write to the user's terminal."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

pytest.importorskip("grpc", reason="needs the extra vertex")

from t5x_harness.google.server.vertex_endpoint import GrpcService

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
        service = GrpcService(cast(Any, None))  # is asked nothing
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
        service = GrpcService(cast(Any, None))  # is asked nothing
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
        service = GrpcService(cast(Any, None))  # is asked nothing
        reader, writer = await asyncio.open_connection("127.0.0.1", await service.port())
        writer.write(PREFACE + frame(SETTINGS, 0))
        assert (await reader.readexactly(9))[3] == SETTINGS
        await reader.readuntil(frame(SETTINGS, 1))  # the service accepts this connection
        told = asyncio.create_task(told_until_the_end(reader, writer))
        await service.stop()
        writer.close()
        return await told

    assert set(asyncio.run(codes())) == {NO_ERROR}
