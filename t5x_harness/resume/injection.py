"""Brings a fault to this process, at its moment."""

import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from t5x_harness.spec.fault import Ending, Fault, Moment
from t5x_harness.upstream.tensorflow import watch_files

_SAVED = re.compile(r"checkpoint_(\d+)[^/]*tmp[^/]*/.+/|gs://.*/checkpoint_(\d+)/.+/")
"""A file in a folder of a checkpoint that is still being written. What lies directly in its folder is written first."""

_COMMITTED = re.compile(r"checkpoint_(\d+)(?:/commit_success\.txt)?$")
"""What makes a checkpoint complete: its name, or a file in it in a bucket, where nothing can be renamed."""

_READ = re.compile(r"checkpoint_\d+/")
_CHUNK = re.compile(r"-chunk(\d+)(\.COMPLETED)?$")
_SIGNALS = {Ending.KILL: signal.SIGKILL, Ending.TERM: signal.SIGTERM, Ending.STOP: signal.SIGSTOP}


class Injector:
    """Brings a fault once.

    Args:
      fault: the fault.
      at_step: the first step at which its moment counts.
      announce: a function that is called with a sentence just before.
    """

    def __init__(self, fault: Fault, at_step: int, announce: Callable[[str], None]) -> None:
        self._fault = fault
        self._at_step = at_step
        self._announce = announce
        self._lock = threading.Lock()
        self.came = False
        if fault.during in (Moment.SAVE, Moment.COMMIT, Moment.RESTORE):
            # Python reports every file that it opens and renames, no matter which library does it; TensorFlow does not.
            sys.addaudithook(self._audit)
            watch_files(self._opened, self._renamed)

    def before_step(self, step: int) -> None:
        """Takes note that a batch is about to be taken."""
        self._reached(Moment.STEP, step, f"before the batch of step {step + 1} was taken")

    def before_eval(self, step: int) -> None:
        """Takes note that the training is about to be evaluated."""
        self._reached(Moment.EVAL, step, f"in the evaluation at step {step}")

    def before_inferring(self, moment: Moment, number: int) -> None:
        """Takes note that the model is about to run over a dataset, of which others came before."""
        self._reached(moment, number, f"when the model had run {number} times")

    def before_compiling(self) -> None:
        """Takes note that the train step is about to be compiled."""
        self._reached(Moment.COMPILE, self._at_step, "while the train step was compiled")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.came:
            return
        if event == "os.rename":
            self._renamed(str(arguments[1]))
        elif event == "open":
            self._opened(str(arguments[0]), "w" in str(arguments[1]))

    def _renamed(self, path: str) -> None:
        if match := _COMMITTED.search(path):
            self._reached(Moment.COMMIT, int(match[1]), f"when checkpoint_{match[1]} was about to become complete")

    def _opened(self, path: str, is_written: bool) -> None:
        if not is_written:
            if _READ.search(path):
                self._reached(Moment.RESTORE, self._at_step, "while a checkpoint was read")
        elif match := _SAVED.search(path):
            step = match[1] or match[2]
            self._reached(Moment.SAVE, int(step), f"while checkpoint_{step} was written")
        elif match := _CHUNK.search(path):
            number = int(match[1])
            if match[2]:
                self._reached(Moment.COMMIT, number, f"when chunk {number} was about to become complete")
            else:
                self._reached(Moment.SAVE, number, f"while chunk {number} was written")
        else:
            self._renamed(path)

    def _reached(self, moment: Moment, step: int, when: str) -> None:
        with self._lock:
            if self.came or moment is not self._fault.during or step < self._at_step:
                return
            self.came = True
        self._announce(when)
        if self._fault.how is Ending.GIL:
            _hold_lock()
        os.kill(os.getpid(), _SIGNALS[self._fault.how])


def _hold_lock() -> None:
    """Sleeps without releasing Python's lock, as a library that loops in C does; other threads never run again."""
    library = ctypes.PyDLL(None)
    while True:
        library.sleep(3600)
