"""Several actors on one store, one of which runs at a time: a seeded generator picks the next one after each step."""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest import mock

from t5x_harness.google.storage import core
from t5x_harness.google.storage.store import ObjectStore

# The calls that end a step: all that read the disk or change it.
_STEPS = "open stat access listdir scandir replace rename unlink mkdir rmdir link utime pread read write".split()


class Deadlock(AssertionError):
    """All actors wait for a lock."""


class Interleaving:
    """Lets actors run in turns.

    Args:
      chance: the generator that picks the next actor after each step; the same seed always yields the same order.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._often = chance.choice([0.1, 0.3, 0.6])  # the probability that another actor continues
        self._turns: list[threading.Semaphore] = []
        self._actors: dict[int, int] = {}
        self._waiting: dict[int, Lock] = {}
        self._over: set[int] = set()
        self._dead = False

    def run(self, *actors: Callable[[], Any]) -> list[Any]:
        """Runs the actors; returns what each of them returned, or the exception that it raised."""
        results: list[Any] = [None] * len(actors)
        self._turns = [threading.Semaphore(0) for _ in actors]
        all_there = threading.Barrier(len(actors) + 1)

        def run(index: int) -> None:
            self._actors[threading.get_ident()] = index
            all_there.wait()
            self._turns[index].acquire()
            try:
                results[index] = actors[index]()
            except BaseException as error:
                results[index] = error
            self._over.add(index)
            self._next(index)

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(actors))]
        for thread in threads:
            thread.start()
        all_there.wait()
        self._chance.choice(self._turns).release()
        for thread in threads:
            thread.join()
        return results

    def step(self) -> None:
        """Lets other actors run before the calling actor continues; does nothing in a thread that is not an actor."""
        index = self._actors.get(threading.get_ident())
        if index is not None:
            self._next(index)

    def wait_for(self, lock: Lock) -> None:
        """Lets other actors run until a lock is free."""
        index = self._actors[threading.get_ident()]
        self._waiting[index] = lock
        self._next(index)
        del self._waiting[index]
        if self._dead:
            raise Deadlock

    def _next(self, index: int) -> None:
        ready = [
            other
            for other in range(len(self._turns))
            if other not in self._over and (other not in self._waiting or self._waiting[other].is_free)
        ]
        waiting = [other for other in self._waiting if other not in self._over]
        if not ready and waiting:
            self._dead, ready = True, waiting[:1]
        if not ready:
            return
        others = [other for other in ready if other != index]
        if not others or (index in ready and self._chance.random() >= self._often):
            return
        self._turns[self._chance.choice(others)].release()
        if index not in self._over:
            self._turns[index].acquire()


class Lock:
    """A lock that its owner may take again; while an actor waits for it, the other actors run."""

    def __init__(self, interleaving: Interleaving) -> None:
        self._interleaving = interleaving
        self._owner: int | None = None
        self._depth = 0

    @property
    def is_free(self) -> bool:
        return self._owner is None

    def acquire(self, blocking: bool = True) -> bool:
        me = threading.get_ident()
        if self._owner != me:
            self._interleaving.step()
            while not self.is_free:
                if not blocking:
                    return False
                self._interleaving.wait_for(self)
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._interleaving.step()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def interleaved(store: ObjectStore, chance: Random, *actors: Callable[[], Any]) -> list[Any]:
    """Runs actors in turns on one store; returns the result or the exception of each."""
    turns = Interleaving(chance)
    kept = store._core.lock
    store._core.lock = Lock(turns)  # type: ignore[assignment]
    try:
        with _steps(turns):
            return turns.run(*actors)
    finally:
        store._core.lock = kept


@contextlib.contextmanager
def _steps(turns: Interleaving) -> Iterator[None]:
    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            turns.step()
            return function(*arguments, **named)

        return call

    with contextlib.ExitStack() as stack:
        flock = fcntl.flock

        def take(file: int, operation: int) -> None:
            """Locks a file; while an actor waits for the lock, the other actors run."""
            while True:
                turns.step()
                try:
                    return flock(file, operation | fcntl.LOCK_NB)
                except BlockingIOError:
                    if operation & fcntl.LOCK_NB:
                        raise

        stack.enter_context(mock.patch.object(fcntl, "flock", take))
        for name in _STEPS:
            stack.enter_context(mock.patch.object(os, name, stepping(getattr(os, name))))
        stack.enter_context(mock.patch.object(builtins, "open", stepping(open)))
        # Here no two files from outside have the same mtime, so no actor has to wait for the clock to tick.
        stack.enter_context(mock.patch.object(core, "_COARSEST_TICK", 0))
        yield
