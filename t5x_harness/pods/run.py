"""A run on a pod: each call is made in the processes of all hosts at the same time."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from typing import Any

from t5x_harness.pods.ending import HostEnd, how_it_ended
from t5x_harness.pods.stall import IDLE_SECONDS, StallWatch
from t5x_harness.pods.unity import unite
from t5x_harness.workers.errors import WorkerError
from t5x_harness.workers.run import ForkedRun, Needed, OnProgress, RunProcess

ALONE = frozenset({"artifacts", "job", "programs"})
"""The calls that the first host answers for all: they read, and need nothing of the others."""

_LINGER_SECONDS = 4.0
"""How long the other hosts may take to fail, too, once one has ended; they wait for it in the next collective."""

_LOOK_SECONDS = 0.25


class PodRun(RunProcess):
    """The same object in the process of each host of a pod.

    A host that ends would leave the others waiting for it, so all end when one does, and the call says which host it
    was, what it did last, and what the others saw.

    Args:
      hosts: the run of each host, in order.
      patience: how many seconds no host may use a core before the pod counts as stuck.
    """

    def __init__(self, hosts: Sequence[ForkedRun], patience: float = IDLE_SECONDS) -> None:
        self._patience = patience
        self.pid = hosts[0].pid
        self.log = hosts[0].log
        self._hosts = tuple(hosts)
        self._last: list[Mapping[str, Any]] = [{} for _ in hosts]
        self._is_broken = False

    @property
    def needed(self) -> Needed | None:
        """The process that the run depends on."""
        return self._hosts[0].needed

    @needed.setter
    def needed(self, process: Needed | None) -> None:
        for host in self._hosts:
            host.needed = process

    def call(  # noqa: D102 - RunProcess says it
        self, method: str, /, *, timeout: float | None = None, on_progress: OnProgress | None = None, **kwargs: Any
    ) -> Any:
        if method in ALONE:
            return self._hosts[0].call(method, timeout=timeout, on_progress=on_progress, **kwargs)
        events: SimpleQueue[tuple[int, Mapping[str, Any]]] = SimpleQueue()
        with ThreadPoolExecutor(len(self._hosts), thread_name_prefix="pod") as threads:
            calls = [
                threads.submit(_call, host, number, method, timeout, events, kwargs)
                for number, host in enumerate(self._hosts)
            ]
            try:
                ends = self._watch(calls, events, on_progress)
            except BaseException:  # a callback of the caller, or Ctrl-C
                self._kill()
                raise
        self._pass_on(events, on_progress)
        if not any(end.is_failure for end in ends):
            return unite([end.reply for end in ends])
        if any(end.reply is None for end in ends):
            self._kill()
        ending = how_it_ended(method, ends)
        if isinstance(ending, Exception):
            raise ending
        return ending

    def close(self) -> None:  # noqa: D102 - RunProcess says it
        if self._is_broken:
            self._kill()
        # At once, because JAX lets no host leave before the others do.
        with ThreadPoolExecutor(len(self._hosts)) as threads:
            list(threads.map(ForkedRun.close, self._hosts))

    def _watch(
        self,
        calls: Sequence[Future[Any]],
        events: SimpleQueue[tuple[int, Mapping[str, Any]]],
        on_progress: OnProgress | None,
    ) -> list[HostEnd]:
        """Waits for the end of the call on all hosts; those that would wait for an ended host are ended."""
        ends: dict[int, HostEnd] = {}
        stall = StallWatch(self._hosts, self._patience)
        deadline: float | None = None
        while len(ends) < len(calls):
            open_ = [call for number, call in enumerate(calls) if number not in ends]
            wait(open_, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            self._pass_on(events, on_progress)
            now = time.monotonic()
            for number, call in enumerate(calls):
                if number not in ends and call.done():
                    ends[number] = self._end_of(number, call, now, is_killed=deadline is not None and now > deadline)
            if deadline is None and any(end.is_failure for end in ends.values()):
                deadline = now + _LINGER_SECONDS
            waiting = [number for number in range(len(calls)) if number not in ends]
            if deadline is None and waiting and (places := stall.places(waiting, now)):
                for number, place in places.items():
                    ends[number] = HostEnd(number, self._last[number], now, stuck_at=place)
                self._kill()
            elif deadline is not None and now > deadline:
                for number in waiting:
                    self._hosts[number].kill()
        return [ends[number] for number in range(len(calls))]

    def _end_of(self, number: int, call: Future[Any], now: float, *, is_killed: bool) -> HostEnd:
        error = call.exception()
        if error is not None and not isinstance(error, WorkerError):
            raise error
        reply = None if error is not None else call.result()
        return HostEnd(number, self._last[number], now, reply, error, is_killed=is_killed)

    def _pass_on(self, events: SimpleQueue[tuple[int, Mapping[str, Any]]], on_progress: OnProgress | None) -> None:
        """Takes the hosts' events. Only the first host's are of interest to others, and faults, which any may have."""
        with contextlib.suppress(Empty):
            while True:
                number, event = events.get_nowait()
                self._last[number] = event
                if on_progress is not None and (number == 0 or "fault" in event):
                    on_progress(event)

    def _kill(self) -> None:
        self._is_broken = True
        for host in self._hosts:
            host.kill()


def _call(
    host: ForkedRun,
    number: int,
    method: str,
    timeout: float | None,
    events: SimpleQueue[tuple[int, Mapping[str, Any]]],
    kwargs: Mapping[str, Any],
) -> Any:
    return host.call(method, timeout=timeout, on_progress=lambda event: events.put((number, event)), **kwargs)
