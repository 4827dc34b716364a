"""ASGI's lifespan: an application is told when the server starts and when it ends."""

from __future__ import annotations

import asyncio
import contextlib

from t5x_harness.google.asgi import App, Message


class Lifespan:
    """The lifespan of one application; one that raises instead of taking part in it is left alone."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()

    async def start(self) -> None:
        """Waits until the application has started; raises RuntimeError if it says that it cannot."""
        self._task = asyncio.create_task(self._live())
        said = await self._tell("startup")
        if said is not None and said["type"] == "lifespan.startup.failed":
            raise RuntimeError(f"the application could not start: {said.get('message', '')}")

    async def end(self) -> None:
        """Waits until the application has ended."""
        await self._tell("shutdown")
        await self._task

    async def _live(self) -> None:
        with contextlib.suppress(Exception):  # by ASGI's rule: it does not know of lifespans
            scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}
            await self._app(scope, self._told.get, self._said.put)

    async def _tell(self, phase: str) -> Message | None:
        """What the application says to the beginning of a phase; None if it takes no part."""
        if self._task.done():
            return None
        self._told.put_nowait({"type": f"lifespan.{phase}"})
        said = asyncio.ensure_future(self._said.get())
        await asyncio.wait([said, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not said.done():
            said.cancel()
            return None
        return said.result()
