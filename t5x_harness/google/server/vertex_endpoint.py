"""Vertex AI in this process over HTTP and gRPC, loaded at the first request: Google's libraries take long to import."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from t5x_harness.google import asgi
from t5x_harness.google.asgi import Receive, Scope, Send
from t5x_harness.google.identity import PRIVATE, UNAUTHENTICATED, UNRECORDED, Authority, bearer
from t5x_harness.google.product import PACKAGE, PRODUCT
from t5x_harness.google.server.settings import ServerError
from t5x_harness.google.vertex.settings import VertexOptions, VertexSettings
from t5x_harness.google.vertex.state import StateError, StateStore, open_store
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, invalid_argument

if TYPE_CHECKING:
    import grpc

    from t5x_harness.google.vertex.wire.api import Api

ADMIN = f"{PRIVATE}/vertex/"
"""The prefix of the harness's own paths, which also need the session's token."""

LOG_ENTRIES = "/v2/entries:list"
"""The path at which Cloud Logging lists log entries: here, those of jobs."""

_THREADS = 1024  # made as needed: requests may wait for operations, or for a fault that delays them
_LARGEST_BODY = 64 << 20
_PROJECTS_V1 = re.compile(r"/v1/projects(?:/([^/:]+))?")
_JSON = {"content-type": "application/json; charset=UTF-8"}

Result = TypeVar("Result")


class VertexMissing(Exception):
    """Google's library for Vertex AI is not installed; the message says how to install it."""


class VertexService:
    """The API, which is loaded when it is needed and runs in separate threads."""

    def __init__(self, options: VertexOptions, authority: Authority) -> None:
        self._options = options
        self._authority = authority
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="vertex")
        self._state: StateStore | None = None
        self._settings: VertexSettings | None = None
        self._loading: asyncio.Task[Api] | None = None
        self.resets: list[Callable[[], object]] = []  # called in a thread when all the session's resources are removed

    async def open_state(self) -> str:
        """Opens the state and returns the URL at which other processes find it; raises ServerError."""
        try:
            self._state = await self._run(open_store, self._options.state)
        except StateError as error:
            raise ServerError(str(error)) from None
        return self._state.url

    @property
    def state(self) -> StateStore:
        """The state that keeps resources, once it is open."""
        assert self._state is not None
        return self._state

    def begin(self, settings: VertexSettings) -> None:
        """Begins to work, once the server's ports are known."""
        self._settings = settings
        if settings.options.warm:
            self._load()

    async def stop(self) -> None:
        """Ends all jobs and closes the state."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
            if not self._loading.cancelled() and self._loading.exception() is None:
                await self._run(self._loading.result().close)
        elif self._state is not None:
            await self._run(self._state.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers JSON over HTTP: for the API, for logs, and for the harness itself below :data:`ADMIN`."""
        token = bearer(asgi.header_of(scope, b"authorization"))
        if not await asyncio.to_thread(self._authority.admits, token):  # before a body is read, or a library imported
            return await asgi.answer_error(send, 401, UNAUTHENTICATED)
        try:
            body = await asgi.body_of(receive, _LARGEST_BODY)
        except ValueError as error:
            return await asgi.answer_error(send, 400, f"{PRODUCT}: {error}")
        if scope["path"] == f"{ADMIN}warm":
            self._load()
            return await asgi.answer_json(send, 200, None)
        if scope["path"] == f"{ADMIN}reset":
            for reset in self.resets:
                await self._run(reset)
        try:
            api = await self._api()
        except VertexMissing as error:
            return await asgi.answer_json(send, asgi.NOT_EMULATED, asgi.not_emulated(str(error)))
        path = scope["path"]
        try:
            if path.startswith(ADMIN) or path == LOG_ENTRIES:
                name = "entries" if path == LOG_ENTRIES else path.removeprefix(ADMIN)
                answered = await self._run(_administer, api, name, body)
            elif _host(scope) == "cloudresourcemanager.googleapis.com" and _PROJECTS_V1.fullmatch(path):
                return await asgi.answer_json(send, 200, await self._run(_projects_v1, api, path))
            else:
                answered = await self._run(_transcode, api, scope, body)
        except ApiError as error:
            from t5x_harness.google.vertex.wire.rest import error_answer

            return await asgi.answer(send, *error_answer(error), _JSON)
        return await asgi.answer(send, 200, answered, _JSON)

    async def stream(self, path: str, request: bytes, token: str, host: str) -> AsyncIterator[bytes]:
        """Answers one request over gRPC, message by message; raises ApiError or VertexMissing."""
        api = await self._api()
        if not await asyncio.to_thread(self._authority.admits, token):
            raise ApiError(StatusCode.UNAUTHENTICATED, UNAUTHENTICATED)
        answers = api.stream(path, request, host=host)
        while (message := await self._run(next, answers, None)) is not None:
            yield message

    async def _api(self) -> Api:
        return await asyncio.shield(self._load())

    def _load(self) -> asyncio.Task[Api]:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._run(self._make))
        return self._loading

    def _make(self) -> Api:
        try:
            rpc_table = importlib.import_module(f"{PACKAGE}.google.vertex.wire.rpc_table")
            rpc_table.import_messages_only()
            rpc_table.rpc_table()
            service = importlib.import_module(f"{PACKAGE}.google.vertex.wire.api")
        except ModuleNotFoundError as error:
            raise VertexMissing(
                f"{PRODUCT} emulates Vertex AI with google-cloud-aiplatform, which is not installed here (there is no "
                f"{error.name}): python -m pip install '{PRODUCT}[vertex]'"
            ) from None
        assert self._settings is not None
        found: Api = service.Api(self._settings, self.state)
        return found

    async def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(function, *arguments))


def _transcode(api: Api, scope: Scope, body: bytes) -> bytes:
    from t5x_harness.google.vertex.wire.rest import answer_rest

    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    unrecorded = bool(asgi.header_of(scope, UNRECORDED.encode()))
    return answer_rest(api, scope["method"], scope["path"], query, body, host=_host(scope), unrecorded=unrecorded)


def _projects_v1(api: Api, path: str) -> Any:
    """Returns one project or all in the form of version 1 of Resource Manager, which gcloud uses."""
    names = api.services.projects

    def shown(project: str) -> dict[str, str]:
        number = names.number(project)
        identifier = names.identifier(number)
        return {"projectNumber": number, "projectId": identifier, "name": identifier, "lifecycleState": "ACTIVE"}

    match = _PROJECTS_V1.fullmatch(path)
    if match and match[1]:
        return shown(match[1])
    return {"projects": [shown(project) for project in names.identifiers()]}


def _administer(api: Api, name: str, body: bytes) -> bytes:
    from t5x_harness.google.vertex.wire.rest import parse_json

    try:
        return json.dumps(api.administer(name, parse_json(body) if body else None)).encode()
    except (OverflowError, TypeError, ValueError) as error:
        raise invalid_argument(str(error)) from None


def _host(scope: Scope) -> str:
    return asgi.header_of(scope, b"host").lower().partition(":")[0]


# The services of Vertex AI, and those that come with every service of Google's.
_OF_VERTEX = (
    "/google.cloud.aiplatform.",
    "/google.cloud.location.",
    "/google.cloud.resourcemanager.",
    "/google.iam.v1.",
    "/google.longrunning.",
)
_LARGEST_MESSAGE = 64 << 20
# The time that clients have to close connections: one that is cut off writes `Got goaway [2] …` to standard error.
_GRACE_SECONDS = 1.0


class GrpcService:
    """gRPC without TLS on a separate port, for Vertex AI and for connections through :func:`relay`."""

    def __init__(self, vertex: VertexService) -> None:
        self.hosts: dict[int, str] = {}  # the host that each relayed connection is for, by its local port
        self._vertex = vertex
        self._starting: asyncio.Task[int] | None = None
        self._server: Any = None

    async def port(self) -> int:
        """Starts the server if it is not running, and returns its port."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> int:
        # In a thread, because other connections are served meanwhile.
        self._grpc: Any = await asyncio.to_thread(importlib.import_module, "grpc")
        await asyncio.to_thread(importlib.import_module, "grpc.aio")
        options = (
            ("grpc.so_reuseport", 0),  # by default, gRPC lets several processes listen on one port
            ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
        )
        self._server = self._grpc.aio.server(handlers=(self,), options=options)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return int(port)

    async def stop(self) -> None:
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._server is not None:
            await self._server.stop(_GRACE_SECONDS)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Returns the handler of a method: Vertex AI's are answered, and others refused before clients retry them."""
        answer = self._emulate if details.method.startswith(_OF_VERTEX) else self._refuse
        # A single message is a stream of one, so this serves methods of every kind. Messages pass as bytes.
        return self._grpc.stream_stream_rpc_method_handler(functools.partial(answer, details.method))

    async def _emulate(self, method: str, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        codes = self._grpc.StatusCode
        token = bearer(dict(context.invocation_metadata() or ()).get("authorization", ""))
        address, _, port = context.peer().rpartition(":")
        # Another loopback address may use the same port number as a relayed connection.
        host = self.hosts.get(int(port)) if address == "ipv4:127.0.0.1" else None
        if host is None:  # it bypassed the relay, and so the check of the client's user
            await context.abort(codes.PERMISSION_DENIED, f"{PRODUCT}: this port is only for its own server")
        assert host is not None  # abort() raises
        request = await anext(aiter(requests), b"")
        try:
            async for message in self._vertex.stream(method, request, token, host):
                yield message
        except VertexMissing as missing:
            await context.abort(codes.UNIMPLEMENTED, str(missing))
        except ApiError as error:
            from t5x_harness.google.vertex.wire.api import fit_for_trailer, to_status

            fitting = fit_for_trailer(error)
            details = ("grpc-status-details-bin", to_status(fitting).SerializeToString())
            await context.abort(codes[fitting.code.value], fitting.message, trailing_metadata=(details,))

    async def _refuse(self, method: str, _requests: Any, context: Any) -> None:
        await context.abort(
            self._grpc.StatusCode.UNIMPLEMENTED,
            f"{PRODUCT} does not emulate {method}: over gRPC only Vertex AI is emulated; Cloud Storage is, over its "
            "JSON and XML APIs",
        )
