"""Two actors that use one state concurrently, step by step, in an order that a test chooses."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from t5x_harness.google.vertex.state.store import MemoryStore

PATIENCE = 60.0


class SteppedStore(MemoryStore):
    """A state in memory that claims to be shared by several servers, and stops before each use by an actor."""

    url = "shared:"

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[int, _Gate] = {}

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("_") and callable(found):
            gate = super().__getattribute__("gates").get(threading.get_ident())
            if gate is not None:
                gate.wait()
        return found


class _Gate:
    """A gate at which an actor waits for its turn."""

    def __init__(self) -> None:
        self.arrived, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self) -> None:
        self.arrived.release()
        assert self.go.acquire(timeout=PATIENCE)


def interleave(
    store: SteppedStore, first: Callable[[], Any], second: Callable[[], Any], order: list[bool]
) -> list[Any]:
    """Runs two actors, one step at a time.

    Args:
      store: the state that they use. Each use is a step.
      first: the first actor.
      second: the second actor.
      order: for each step, whether the second actor takes it. After the end of the order, the first actor continues;
        after the end of one actor, the other one continues.

    Returns:
      The result or the exception of each actor.
    """
    gates = [_Gate(), _Gate()]

    def act(number: int, what: Callable[[], Any]) -> Any:
        ident = threading.get_ident()
        store.gates[ident] = gates[number]
        try:
            gates[number].wait()
            return what()
        except Exception as error:
            return error
        finally:
            del store.gates[ident]
            gates[number].arrived.release()

    with ThreadPoolExecutor(2) as pool:
        actors: list[Future[Any]] = [pool.submit(act, number, what) for number, what in enumerate((first, second))]
        left = {0, 1}
        for gate in gates:
            assert gate.arrived.acquire(timeout=PATIENCE)
        steps = iter(order)
        while left:
            wanted = int(next(steps, False))
            turn = wanted if wanted in left else min(left)
            gates[turn].go.release()
            assert gates[turn].arrived.acquire(timeout=PATIENCE)
            if not store.gates or len(store.gates) < len(left):
                left.discard(turn)
        return [actor.result() for actor in actors]
