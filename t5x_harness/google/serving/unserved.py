"""The application of a server without a storage: it says so."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.google.serving.asgi import App, Receive, Scope, Send, answer_error

__all__ = ["make_app"]


def make_app(root: Path) -> App:
    """Answers 501 to everything.

    Args:
      root: would hold the buckets.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])  # uvicorn goes on without a lifespan
        await answer_error(send, 501, f"t5x-harness serves no storage here: {scope['method']} {scope['path']}")

    return app
