"""One process of a training, which a fault may end, and which may be started before its time."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from t5x_harness.spec import Fault, Finding
from t5x_harness.system.closing import Closing
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import RunProcess


@dataclasses.dataclass(frozen=True)
class TrainingEnd:
    """How a training ended.

    Attributes:
      moment: what it did when the fault came, in words; empty if none came.
      how: how it ended, in words; empty if it trained to its last step.
      finding: the mistake that ended it; None if none did.
      metrics: the scalars in MODEL_DIR by tag and step, if it trained to its last step.
    """

    moment: str
    how: str
    finding: Finding | None = None
    metrics: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


class Life(Closing):
    """One process of a training, from its start to its end.

    Args:
      process: the process.
      arguments: those of :meth:`t5x_harness.resume.training.Training.train` but the fault and the permit.
      timeout: the seconds that the training may take; None for no limit.
      fault: the fault that ends it; None for none.
    """

    def __init__(
        self, process: RunProcess, arguments: Mapping[str, Any], timeout: float | None, fault: Fault | None
    ) -> None:
        self._process = process
        self._arguments = arguments
        self._timeout = timeout
        self._fault = fault

    def close(self) -> None:
        """Ends the process. May be called again, from another thread."""
        self._process.close()

    def train(self, on_look: Callable[[], None] = lambda: None, permit: Path | None = None) -> TrainingEnd:
        """Trains.

        Args:
          on_look: is called when the training is about to look for its checkpoint, if it says so.
          permit: a file that the training awaits before that; None not to wait.

        Raises:
          WorkerError: the process ended without a fault.
        """
        moments: list[str] = []
        fault = self._fault
        # A training that waits does so for as long as another one takes, which has the same limit.
        timeout = self._timeout if self._timeout is None or permit is None else 2 * self._timeout
        with contextlib.ExitStack() as timers:

            def note(event: Mapping[str, Any]) -> None:
                if "looks" in event:
                    on_look()
                if "fault" not in event:
                    return
                moments.append(event["fault"])
                assert fault is not None
                timer = threading.Timer(fault.grace, self._process.close)
                timers.callback(timer.cancel)
                timer.start()

            try:
                ended: Mapping[str, Any] = self._process.call(
                    "train",
                    timeout=timeout,
                    on_progress=note,
                    fault=None if fault is None else fault.to_json(),
                    permit="" if permit is None else str(permit),
                    **self._arguments,
                )
            except RunDied:
                if not moments:
                    raise
                return TrainingEnd(moments[0], "")
        found = Finding.from_json(ended["finding"]) if "finding" in ended else None
        how = f"it ended by itself ({ended['ended']})" if "ended" in ended else ""
        return TrainingEnd(next(iter(moments), ""), how, found, ended.get("metrics", {}))


class WaitingLife(Closing):
    """A process that begins beside the one that it follows, and waits before it reads what that one writes.

    Args:
      life: the process.
      permit: the file that it awaits.
    """

    def __init__(self, life: Life, permit: Path) -> None:
        self._life = life
        self._permit = permit
        self._end = Future[TrainingEnd]()
        threading.Thread(target=self._work, name="waiting life", daemon=True).start()

    def close(self) -> None:
        """Ends the process. May be called again."""
        self._life.close()

    def train(self) -> TrainingEnd:
        """Lets it read, and waits for its end; see :meth:`Life.train`."""
        self._permit.touch()
        return self._end.result()

    def _work(self) -> None:
        try:
            with self._life:
                end = self._life.train(permit=self._permit)
        except BaseException as error:  # raised when the end is asked for
            self._end.set_exception(error)
        else:
            self._end.set_result(end)
