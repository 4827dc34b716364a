"""What is answered without waiting takes no task, and what waits goes on as in any."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from t5x_harness.google.server.eager import begin
from t5x_harness.google.server.http1 import HttpServer
from t5x_harness.google.server.http1_parsing import RequestParser

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"


def test_work_that_does_not_wait_is_done_when_it_was_begun() -> None:
    async def main() -> None:
        done: list[int] = []

        async def work() -> None:
            done.append(1)

        assert begin(work()) is None
        assert done == [1]

    asyncio.run(main())


def test_work_that_waits_goes_on_in_a_task() -> None:
    async def main() -> None:
        done: list[object] = []

        async def work() -> None:
            for number in range(3):
                await asyncio.sleep(0)
                done.append(number)
            done.append(await asyncio.to_thread(lambda: "of a thread"))

        task = begin(work())
        assert task is not None
        assert done == []
        await task
        assert done == [0, 1, 2, "of a thread"]

    asyncio.run(main())


def test_errors_come_out_of_the_task() -> None:
    async def main() -> None:
        async def work() -> None:
            await asyncio.sleep(0)
            raise ValueError("of the work")

        task = begin(work())
        assert task is not None
        with pytest.raises(ValueError, match="of the work"):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_who_cancels_the_task_cancels_the_work_which_may_clear_up(turns: int) -> None:
    async def main() -> None:
        done: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(0)
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                done.append("cleared up")

        task = begin(work())
        assert task is not None
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["cleared up"]

    asyncio.run(main())


Ask = Callable[..., Awaitable[bytes]]


@contextlib.asynccontextmanager
async def asking(answered_in: list[asyncio.Task[object] | None], *, read: bool = True) -> AsyncIterator[Ask]:
    """Sends pieces of a request, one after another, to an application that notes in which task it answers."""

    async def app(scope, receive, send) -> None:
        while read and (await receive()).get("more_body"):
            pass
        answered_in.append(asyncio.current_task())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answered"})

    http = HttpServer(app)
    server = await asyncio.get_running_loop().create_server(http.protocol, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())

    async def ask(*pieces: bytes) -> bytes:
        for piece in pieces:
            writer.write(piece)
            for _ in range(5):  # turns, for the server to read it
                await asyncio.sleep(0.001)
        await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(len(b"answered"))

    try:
        yield ask
    finally:
        writer.close()
        server.close()
        await http.stop()


@pytest.mark.parametrize(
    "pieces",
    [(HEAD + b"body",), (HEAD, b"body"), (HEAD[:9], HEAD[9:], b"body"), (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",)],
)
def test_a_request_that_is_there_is_answered_where_it_is_read(pieces: tuple[bytes, ...]) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[object] | None] = []
        async with asking(tasks) as ask:
            for _ in range(2):  # the second on the same connection
                assert await ask(*pieces) == b"answered"
        assert tasks == [None, None]

    asyncio.run(main())


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        HEAD + b"body",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ],
)
def test_what_was_read_of_a_request_does_not_wait_for_the_garbage_collector(request_: bytes) -> None:
    parser = RequestParser()
    rest = request_
    while rest:
        _, rest = parser.feed(rest)
    assert parser.over
    gone = weakref.ref(parser)
    gc.disable()
    try:
        del parser
        assert gone() is None
    finally:
        gc.enable()


def test_a_body_that_comes_in_pieces_is_waited_for_in_a_task() -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[object] | None] = []
        async with asking(tasks) as ask:
            assert await ask(HEAD, b"bo", b"dy") == b"answered"
        assert isinstance(tasks[0], asyncio.Task)

    asyncio.run(main())


def test_an_answer_before_the_body_is_over() -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[object] | None] = []
        async with asking(tasks, read=False) as ask:
            assert await ask(HEAD, b"bo", b"dy") == b"answered"
            assert await ask(HEAD + b"body" + HEAD + b"body") == b"answered"
            assert await ask() == b"answered"  # requests that do not wait for answers
        assert tasks == [None, None, None]

    asyncio.run(main())


def test_a_server_that_ends_closes_a_connection_on_which_only_a_head_came() -> None:
    heard: list[str] = []

    async def main() -> None:
        async def app(scope, receive, send) -> None:
            await receive()
            heard.append(scope["type"])

        http = HttpServer(app)
        server = await asyncio.get_running_loop().create_server(http.protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(HEAD)
        while not http.connections:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        server.close()
        await http.stop()
        assert await reader.read() == b""
        writer.close()

    asyncio.run(main())
    assert heard == []
