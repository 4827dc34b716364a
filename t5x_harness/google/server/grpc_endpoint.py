"""gRPC: a server that starts with the first client, because importing gRPC takes longer than everything else."""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from t5x_harness.google.identity import bearer
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.vertex_endpoint import VertexMissing, VertexService
from t5x_harness.google.vertex.wire.errors import ApiError

if TYPE_CHECKING:
    import grpc

# The services of Vertex AI, and those that come with every service of Google's.
_OF_VERTEX = (
    "/google.cloud.aiplatform.",
    "/google.cloud.location.",
    "/google.cloud.resourcemanager.",
    "/google.iam.v1.",
    "/google.longrunning.",
)
_LARGEST_MESSAGE = 64 << 20
# For clients to close their connections: one that is cut off writes `Got goaway [2] …` to its standard error.
_GRACE_SECONDS = 1.0


class GrpcService:
    """gRPC without TLS on a port of its own, for connections that come through a :class:`Relay`.

    Args:
      vertex: answers for Vertex AI. Nothing else is emulated over gRPC.

    Attributes:
      hosts: the host that each relayed connection is for, by the connection's local port.
    """

    def __init__(self, vertex: VertexService) -> None:
        self.hosts: dict[int, str] = {}
        self._vertex = vertex
        self._starting: asyncio.Task[int] | None = None
        self._server: grpc.aio.Server | None = None

    async def port(self) -> int:
        """Starts the server if it is not running, and returns its port."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> int:
        # In a thread, because other connections are served meanwhile.
        grpc = await asyncio.to_thread(importlib.import_module, "grpc")
        await asyncio.to_thread(importlib.import_module, "grpc.aio")
        options = (
            ("grpc.so_reuseport", 0),  # for this process alone: by default gRPC lets several listen on one port
            ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
        )
        self._server = grpc.aio.server(handlers=(_handler(grpc, self._vertex, self.hosts),), options=options)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return int(port)

    async def stop(self) -> None:
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._server is not None:
            await self._server.stop(_GRACE_SECONDS)


def _handler(grpc: Any, vertex: VertexService, hosts: Mapping[int, str]) -> grpc.GenericRpcHandler:
    """Returns the handler of all methods: Vertex AI's are answered, and others refused before clients retry them."""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            answer = _emulating(grpc, vertex, hosts) if details.method.startswith(_OF_VERTEX) else _refusing(grpc)
            # A single message is a stream of one, so this serves methods of every kind. Messages pass as bytes.
            return grpc.stream_stream_rpc_method_handler(functools.partial(answer, details.method))

    return Handler()


def _emulating(grpc: Any, vertex: VertexService, hosts: Mapping[int, str]) -> Callable[..., AsyncIterator[bytes]]:
    async def emulate(method: str, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        token = bearer(dict(context.invocation_metadata() or ()).get("authorization", ""))
        address, _, port = context.peer().rpartition(":")
        # Another loopback address may use the same port number as a relayed connection.
        host = hosts.get(int(port)) if address == "ipv4:127.0.0.1" else None
        if host is None:  # it bypassed the relay, and with it the check of the client's user
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{PRODUCT}: this port is only for its own server")
        assert host is not None  # abort() raises
        request = await anext(aiter(requests), b"")
        try:
            async for message in vertex.stream(method, request, token, host):
                yield message
        except VertexMissing as missing:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(missing))
        except ApiError as error:
            from t5x_harness.google.vertex.wire.api import fit_for_trailer, to_status

            fitting = fit_for_trailer(error)
            details = ("grpc-status-details-bin", to_status(fitting).SerializeToString())
            await context.abort(grpc.StatusCode[fitting.code.value], fitting.message, trailing_metadata=(details,))

    return emulate


def _refusing(grpc: Any) -> Callable[..., Awaitable[None]]:
    async def refuse(method: str, _requests: Any, context: Any) -> None:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            f"{PRODUCT} does not emulate {method}: over gRPC only Vertex AI is emulated; Cloud Storage is, over its "
            "JSON and XML APIs",
        )

    return refuse
