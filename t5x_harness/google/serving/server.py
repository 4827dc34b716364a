"""The server: its ports, what speaks on them, and its life from a folder made to a folder removed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import shutil
import signal
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from t5x_harness.google.environment import google_environment
from t5x_harness.google.serving.asgi import App
from t5x_harness.google.serving.authority import Authority
from t5x_harness.google.serving.by_protocol import ByProtocol
from t5x_harness.google.serving.certificates import make_service_key
from t5x_harness.google.serving.endpoints import Endpoints
from t5x_harness.google.serving.filling import fill_folder, write_clients_files
from t5x_harness.google.serving.folder import SessionFolder
from t5x_harness.google.serving.front import front
from t5x_harness.google.serving.grpc_service import GrpcService
from t5x_harness.google.serving.http_server import HttpServer
from t5x_harness.google.serving.proxy import Proxy, Refusals, with_whole_urls
from t5x_harness.google.serving.relay import Relay
from t5x_harness.google.serving.settings import ServerError, Settings
from t5x_harness.google.serving.vertex_service import VertexService
from t5x_harness.google.storage.errors import CannotOpen, StorageError
from t5x_harness.google.vertex.settings import VertexSettings

__all__ = ["serve"]

_BACKLOG = 1024
_LOOK_SECONDS = 0.5


async def serve(settings: Settings, ready: Callable[[Endpoints], None]) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP, or until the process that it is for has ended.

    Args:
      settings: what to serve, and how long.
      ready: called once every port is open.

    Raises:
      ServerError: it cannot be done; the message says why.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and shells in the background have it
            loop.add_signal_handler(number, stopped.set)
    path = Path(tempfile.mkdtemp(prefix="t5x-harness-google-"))
    try:
        async with _running(settings, SessionFolder(path)) as endpoints:
            ready(endpoints)
            async with _watching(settings.owner, stopped):
                await stopped.wait()
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def _running(settings: Settings, folder: SessionFolder) -> AsyncIterator[Endpoints]:
    root = settings.root or folder.buckets
    service_key = asyncio.create_task(asyncio.to_thread(make_service_key))  # meanwhile, as it needs no lock of Python's
    refusals, authority = Refusals(), Authority()
    vertex = VertexService(settings.vertex, authority)
    grpc = GrpcService(vertex)
    context = fill_folder(folder)
    app = front(_storage(settings.app, root), vertex, authority, refusals)
    http = HttpServer(with_whole_urls(app, refusals))

    def through_grpc(host: str = "") -> Relay:
        return Relay(grpc.port, host, grpc.hosts)

    by_protocol = functools.partial(ByProtocol, http.protocol, through_grpc)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(grpc.stop)
        await http.start()
        stack.push_async_callback(http.stop)
        stack.push_async_callback(vertex.stop)  # first of all: jobs may still want storage for what they do last

        async def listen(
            protocol: Callable[[], asyncio.Protocol], port: int = 0, tls: ssl.SSLContext | None = None
        ) -> int:
            server = await _listening(protocol, port, tls)
            stack.callback(server.close)
            bound: int = server.sockets[0].getsockname()[1]
            return bound

        endpoints = Endpoints(
            http=await listen(http.protocol, settings.port),
            tls=await listen(by_protocol, tls=context),
            proxy=await listen(lambda: Proxy(context, by_protocol, http.protocol, refusals), settings.proxy_port),
            grpc=await listen(through_grpc),
            folder=folder.path,
            root=root.absolute(),
            pid=os.getpid(),
            state=await vertex.open_state(),
        )
        authority.key = await service_key
        write_clients_files(folder, authority.key, authority.token, url=endpoints.url, proxy=endpoints.proxy)
        vertex.begin(VertexSettings(endpoints.root, folder.jobs, google_environment(endpoints), settings.vertex))
        yield endpoints


def _storage(name: str, root: Path) -> App:
    module, _, attribute = name.partition(":")
    factory: Callable[[Path], App] = getattr(importlib.import_module(module), attribute)
    try:
        root.mkdir(parents=True, exist_ok=True)
        return factory(root)
    except OSError as error:
        raise ServerError(f"{root} cannot keep buckets: {error.strerror or error}") from error
    except (CannotOpen, StorageError) as error:
        raise ServerError(str(error)) from error


async def _listening(
    protocol: Callable[[], asyncio.Protocol], port: int, context: ssl.SSLContext | None
) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            protocol, "127.0.0.1", port, backlog=_BACKLOG, ssl=context
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ServerError(f"port {port} cannot be had: {reason}; name another one, or none for any") from None


@contextlib.asynccontextmanager
async def _watching(owner: int | None, stopped: asyncio.Event) -> AsyncIterator[None]:
    """Sets the event when the process ``owner`` has ended."""
    if owner is None:
        yield
        return
    watching = asyncio.create_task(_ended(owner))
    watching.add_done_callback(lambda _: stopped.set())
    try:
        yield
    finally:
        watching.cancel()


async def _ended(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel, or a sandbox, without pidfds
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(_LOOK_SECONDS)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
