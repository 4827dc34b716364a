"""Runs that work in the background: several at once, each in a process of its own; results are taken later, in order.

Tracing, building input pipelines and most of compiling is done by one thread of a run, which waits for disks and other
threads besides, so that runs one after the other leave cores without work. Here a thread of this process asks each run
for its stages, before anyone wants them; it only waits for the run's process. A result is asked of
:class:`BackgroundRun` as if that was a pipeline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from t5x_harness.spec import RunResult, RunSpec, Stage, StageResult

if TYPE_CHECKING:
    from t5x_harness.runs.pipeline import Pipeline

OnProgress = Callable[[Mapping[str, Any]], None]

OpenPipeline = Callable[[OnProgress], contextlib.AbstractContextManager["Pipeline"]]
"""Makes a run's pipeline, which tells the argument of its progress, when it is the run's turn to work."""

_IMPATIENT_SECONDS = 0.5

MOST = 4
"""Runs at once where nobody names a number: each takes up to a gigabyte."""


def runs_at_once(ahead: int | None) -> int:
    """Returns how many runs may work at the same time.

    Args:
      ahead: how many beside the one whose result is waited for; None for as many as this process may use cores, which
        keeps them busy while one of the runs waits.
    """
    return 1 + ahead if ahead is not None else min(MOST, 1 + len(os.sched_getaffinity(0)))


class BackgroundRuns:
    """Lets runs work at the same time, in the order in which they are begun.

    It is ended by :meth:`cancel`, then the end of the worker that a run's thread may wait for, then :meth:`join`. Its
    threads are daemons: the interpreter does not wait for one of them that nobody joined.

    Args:
      at_once: how many may work at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._waiting: SimpleQueue[BackgroundRun | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._runs: list[BackgroundRun] = []

    def begin(
        self,
        spec: RunSpec,
        stages: Sequence[Stage],
        make: OpenPipeline,
        on_progress: Callable[[RunSpec], OnProgress],
    ) -> BackgroundRun:
        """Lets a run work as soon as fewer than ``at_once`` others do.

        Args:
          spec: what to run.
          stages: those to run, in order.
          make: makes its pipeline, in a thread.
          on_progress: makes what is notified, in a thread, of the progress of a stage while that is waited for.
        """
        run = BackgroundRun(spec, stages, make, on_progress)
        self._runs.append(run)
        self._waiting.put(run)
        if len(self._threads) < self.at_once:
            self._threads.append(threading.Thread(target=self._work, name="t5x-background", daemon=True))
            self._threads[-1].start()
        return run

    def cancel(self) -> None:
        """Ends all runs, without waiting for that; their threads may still wait for the worker, which comes next."""
        for run in self._runs:
            run.close()

    def join(self, *, patient: bool = True) -> None:
        """Waits until no thread is left.

        Args:
          patient: whether to wait for one that waits for something that is just starting; else for a moment only.
        """
        for _ in self._threads:
            self._waiting.put(None)
        deadline = time.monotonic() + _IMPATIENT_SECONDS
        for thread in self._threads:
            thread.join(None if patient else max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            run.work()


class BackgroundRun:
    """A run that works by itself; what it is asked for is what its pipeline would answer."""

    def __init__(
        self,
        spec: RunSpec,
        stages: Sequence[Stage],
        make: OpenPipeline,
        on_progress: Callable[[RunSpec], OnProgress],
    ) -> None:
        self.spec = spec
        self.stages = tuple(sorted(stages, key=list(Stage).index))  # which may be asked for in any order
        self._make = make
        self._results: dict[Stage, Future[StageResult]] = {stage: Future() for stage in self.stages}
        self._end: Future[RunResult] = Future()
        self._asked: list[Stage] = []
        self._over = threading.Event()  # no further stage is wanted
        self._closed = False
        self._pipeline: Pipeline | None = None
        self._progress = _Progress(lambda: on_progress(spec))

    @property
    def is_asked(self) -> bool:
        """Whether anyone wanted a result."""
        return bool(self._asked)

    def stage(self, stage: Stage) -> StageResult:
        """Returns the result of one of the stages that the run was begun with, which is waited for.

        Raises:
          Exception: what making the pipeline raised.
        """
        self._asked.append(stage)
        with self._progress.shown(stage):
            return self._results[stage].result()

    def result(self) -> RunResult:
        """Returns the outcome of the stages that were asked for; waits until the run's process has ended.

        Raises:
          Exception: what making the pipeline raised.
        """
        self._over.set()
        return self._as_asked(self._end.result())

    def known(self, *, asked: bool = False) -> RunResult:
        """Returns the outcome of the stages so far; nothing is waited for.

        Args:
          asked: whether it is about those that were asked for alone.
        """
        known = RunResult(self.spec, ()) if self._pipeline is None else self._pipeline.known()
        return self._as_asked(known) if asked else known

    def _as_asked(self, result: RunResult) -> RunResult:
        """Returns a result without the stages after the last one that was asked for."""
        last = max((self.stages.index(stage) for stage in self._asked), default=-1)
        later = self.stages[last + 1 :]
        return dataclasses.replace(result, stages=tuple(s for s in result.stages if s.stage not in later))

    def close(self) -> None:
        """Has the run's process killed if it still works; does not wait for the thread. May be called again."""
        self._closed = True
        self._over.set()
        if self._pipeline is not None:
            self._pipeline.close()

    def work(self) -> None:
        """Does all of it, in the thread that calls; nothing if it has been closed."""
        if self._closed:
            return
        try:
            with self._make(self._progress) as self._pipeline:
                for stage, result in self._results.items():
                    if self._over.is_set():
                        break
                    result.set_result(self._pipeline.stage(stage))
                end = self._pipeline.result()
            self._end.set_result(end)
        except BaseException as error:  # raised where the results are asked for
            futures: tuple[Future[Any], ...] = (*self._results.values(), self._end)
            for future in futures:
                if not future.done():
                    future.set_exception(error)


class _Progress:
    """Takes a run's events, and passes those on that are about the stage that somebody waits for."""

    def __init__(self, make: Callable[[], OnProgress]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._last: Mapping[str, Any] = {}
        self._stage: Stage | None = None

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            self._last = event
            self._tell()

    @contextlib.contextmanager
    def shown(self, stage: Stage) -> Iterator[None]:
        """Shows what is known of this stage, and what comes, while the block lasts."""
        _ = self._receiver  # made in the caller's thread, also where nothing is shown
        with self._lock:
            self._stage = stage
            self._tell()
        try:
            yield
        finally:
            with self._lock:  # afterwards the receiver is used by the caller's thread alone
                self._stage = None

    def _tell(self) -> None:
        if self._stage is not None and self._last.get("stage") == self._stage:
            self._receiver(self._last)

    @functools.cached_property
    def _receiver(self) -> OnProgress:
        return self._make()
