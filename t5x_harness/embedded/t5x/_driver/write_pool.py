"""Writing results in the background without losing an error."""

from __future__ import annotations

import concurrent.futures
from typing import Any


class FailFastThreadPoolExecutor(concurrent.futures.ThreadPoolExecutor):
    """A thread pool that raises what went wrong in its threads in the thread that uses it, at the next chance.

    It is to be used from one thread only.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        """Takes the arguments of ``concurrent.futures.ThreadPoolExecutor``."""
        super().__init__(*args, **kwargs)
        self._unchecked: list[concurrent.futures.Future[Any]] = []

    def check_for_exceptions(self, wait: bool = False) -> None:
        """Raises the first exception of the calls that have ended.

        Args:
            wait: wait for all calls to end first.
        """
        if wait:
            concurrent.futures.wait(self._unchecked)
        ended = [future for future in self._unchecked if future.done()]
        self._unchecked = [future for future in self._unchecked if future not in ended]
        for future in ended:
            future.result()

    def submit(self, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Schedules a call, and raises what went wrong in earlier ones."""
        future = super().submit(*args, **kwargs)
        self._unchecked.append(future)
        self.check_for_exceptions()
        return future

    def shutdown(self, *args: Any, wait: bool = False, **kwargs: Any) -> None:
        """Ends the pool; raises what went wrong so far, or in any call if ``wait`` is set."""
        try:
            self.check_for_exceptions(wait=wait)
        finally:
            super().shutdown(*args, wait=wait, **kwargs)
