"""Work that begins at once: most requests are answered before there is anything to wait for.

A task begins in the event loop's next turn, which asks the system for news before it, and another turn tells who waits
for its end. Python has eager tasks from 3.12 on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Runs a coroutine up to where it first waits, and lets a task go on from there.

    Until then it is in no task, so that ``asyncio.current_task`` and ``asyncio.timeout`` are not for it.

    Returns:
      The task; None if the coroutine has ended already.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return asyncio.get_running_loop().create_task(_Begun(work, awaited))


class _Begun(Coroutine[Any, Any, None]):
    """A coroutine that says again, to the task that takes it over, what it waits for already."""

    def __init__(self, work: Coroutine[Any, Any, None], awaited: object) -> None:
        self._work = work
        self._awaited = [awaited]

    def send(self, value: object) -> object:
        return self._awaited.pop() if self._awaited else self._work.send(value)

    def throw(self, *error: Any) -> object:
        self._awaited.clear()
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        if self._awaited:
            yield self._awaited.pop()
        yield from self._work.__await__()
