"""uvicorn's HTTP/1.1 protocol, made to take what TensorFlow sends."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from t5x_harness.google.serving.connection import handing_over
from t5x_harness.google.serving.heads import LONGEST_HEAD, HeadFilter

__all__ = ["HttpProtocol"]


class HttpProtocol(H11Protocol):
    """One connection. Heads of requests go through a :class:`HeadFilter`, bodies do not."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, handing_over(app_state, lambda: self.transport), _loop)
        self._filter = HeadFilter()

    def data_received(self, data: bytes) -> None:
        """Called by the transport."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            data = self._filter.feed(data)
        if data:
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Called when an answer has been sent; the next request may be there already."""
        early = b""
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
            early, _ = self.conn.trailing_data
        if early:
            # Its head has to be filtered, too, but h11 does not take back what it was given. A new connection is in
            # the state in which this one would be.
            self.conn = h11.Connection(h11.SERVER, LONGEST_HEAD)
        super().on_response_complete()
        if early and not self.transport.is_closing():
            self.data_received(early)
