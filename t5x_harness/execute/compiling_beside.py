"""Compiles what a run evaluates with while its train step compiles.

XLA compiles without Python's lock, and mostly on one core. T5X traces and compiles the step of each kind of evaluation
when the first one is due, which here is two train steps later.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["compile_evaluations_beside"]


def compile_evaluations_beside() -> None:
    """Has training compile its evaluations beside its train step; acts with the embedded T5X, and once."""
    train_loop: Any = sys.modules.get("t5x._driver.train_loop")
    if train_loop is None or hasattr(train_loop.TrainLoop.compile, "__wrapped__"):
        return
    compile_train = train_loop.TrainLoop.compile

    @functools.wraps(compile_train)
    def compile_both(self: Any) -> None:
        if not self.schedule.periods.evaluate:
            compile_train(self)
            return
        # Tracing needs Python's lock: two threads that trace would both be late.
        traced = threading.Event()
        with ThreadPoolExecutor(1, "t5x-compile") as threads, _set_by_compiling(traced):
            threads.submit(_compile_evaluations, self.evaluation, traced)
            try:
                compile_train(self)
            finally:
                traced.set()

    train_loop.TrainLoop.compile = compile_both


def _compile_evaluations(evaluation: Any, traced: threading.Event) -> None:
    traced.wait()
    with contextlib.suppress(Exception):  # the evaluation that needs it raises it again, when it is due
        evaluation.compile()


@contextlib.contextmanager
def _set_by_compiling(event: threading.Event) -> Iterator[None]:
    """While the block lasts, the event is set when a step has been traced and lowered, and is about to be compiled."""
    jitted: Any = sys.modules["t5x._partitioning.jitted"]
    compile_lowered = jitted.compile_lowered

    def compile_and_tell(lowered: Any) -> Any:
        event.set()
        return compile_lowered(lowered)

    jitted.compile_lowered = compile_and_tell
    try:
        yield
    finally:
        jitted.compile_lowered = compile_lowered
