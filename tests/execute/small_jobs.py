"""Jobs that save and restore states of two parameters, as T5X does, in a process of their own."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.execute.execution import open_execution


def open_jobs(argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> Jobs:
    """Sets up the process; takes the arguments of :func:`open_execution`."""
    open_execution(argument, progress)
    return Jobs()


class Jobs:
    """Jobs in one process, one after another; each returns what it restored and saved, and its error."""

    def run(self, folder: str, saves: list[int], most_bytes: int | None = None) -> dict[str, Any]:
        """Restores the newest checkpoint in a folder, as T5X chooses it, and saves states at further steps.

        No file can be larger than ``most_bytes``, as on a disk that is full.
        """
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes or unlimited[0], unlimited[1]))
        try:
            return self._run(folder, saves)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)

    def _run(self, folder: str, saves: list[int]) -> dict[str, Any]:
        import numpy as np
        from small_states import state
        from t5x import checkpoints

        found: dict[str, Any] = {"restored": None, "saved": [], "error": ""}
        steps = checkpoints.all_steps(folder)
        manager = _manager(folder)
        try:
            if steps:
                restored = manager.restore(path=f"{folder}/checkpoint_{max(steps)}")
                wanted = state(max(steps)).params["enc"]["kernel"]
                assert np.array_equal(restored.params["enc"]["kernel"], wanted)
                found["restored"] = int(restored.step)
            for step in saves:
                manager.save(state(step))
                manager.wait_until_finished()
                found["saved"].append(step)
            manager.close()
        except Exception as error:  # of orbax, tensorstore or TensorFlow
            found["error"] = f"{type(error).__name__}: {error}"
        return found

    def overtaken(self, folder: str, step: int) -> None:
        """Lets a second job start in the folder while the first one waits for the upload of its commit files."""
        from small_states import state

        first = _manager(folder)
        first.save(state(step))
        time.sleep(1)
        _manager(folder).close()
        first.wait_until_finished()
        first.close()

    def evaluated(self, folder: str, step: int) -> str:
        """Restores a checkpoint while a training that keeps one saves the next; returns the error."""
        from small_states import state

        def train() -> None:
            time.sleep(0.5)
            training = _manager(folder, keep=1)
            training.save(state(step + 1))
            training.close()

        evaluation = _manager(folder)
        thread = threading.Thread(target=train)
        thread.start()
        try:
            evaluation.restore(path=f"{folder}/checkpoint_{step}")
        except Exception as error:  # of orbax, tensorstore or TensorFlow
            return f"{type(error).__name__}: {error}"
        finally:
            thread.join()
        return ""


def _manager(folder: str, keep: int | None = None) -> Any:
    import tensorflow as tf
    from small_states import partitioner, shapes, state
    from t5x import checkpoints

    tf.io.gfile.makedirs(folder)
    return checkpoints.OrbaxCheckpointManagerInterface(folder, shapes(state()), partitioner(), keep=keep)
