"""gRPC: a server that is started by the first who asks for it, because importing gRPC takes longer than all else."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import grpc

__all__ = ["GrpcService"]


class GrpcService:
    """gRPC on a port of its own, without TLS: connections come through a :class:`Relay`, which has ended it."""

    def __init__(self) -> None:
        self._starting: asyncio.Task[int] | None = None
        self._server: grpc.aio.Server | None = None

    async def port(self) -> int:
        """Its port; starts it if nobody has."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> int:
        # In a thread, as connections of other kinds are being served meanwhile.
        grpc = await asyncio.to_thread(importlib.import_module, "grpc")
        await asyncio.to_thread(importlib.import_module, "grpc.aio")
        # The port is this process's alone: by default gRPC lets several listen on one.
        self._server = grpc.aio.server(handlers=(_unimplemented(grpc),), options=(("grpc.so_reuseport", 0),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return int(port)

    async def stop(self) -> None:
        """Ends it, if it was started."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._server is not None:
            await self._server.stop(grace=None)


def _unimplemented(grpc: Any) -> grpc.GenericRpcHandler:
    """Refuses every method at once: a client that is left without an answer tries again for a minute."""

    class Unimplemented(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            async def refuse(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
                await context.abort(
                    grpc.StatusCode.UNIMPLEMENTED,
                    f"t5x-harness does not emulate {details.method}: over gRPC nothing is emulated; "
                    "Cloud Storage is, over its JSON and XML APIs",
                )

            return grpc.stream_stream_rpc_method_handler(refuse)

    return Unimplemented()
