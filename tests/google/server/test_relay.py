"""A relay loses no byte, waits for the slower side, and ends when either side does."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from t5x_harness.google.server.tunnel import relay

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
            gc.collect()  # which reports exceptions that were not handled

    unhandled: list[str] = []
    assert asyncio.run(run()) == b""
    assert unhandled == []
