"""Sessions whose runs hang in resolve without importing the stack, for tests of interrupts and kills."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

HANGING = """
import os, time
from pathlib import Path

class Session:
    def __init__(self, argument, progress):
        self.name = argument["spec"]["gin_files"][0].split("/")[-1]

    def resolve(self):
        Path(f"{self.name}.at_work").write_text(str(os.getpid()))
        time.sleep(600)
"""
"""The file ``hanging.py``: resolve of each config writes its pid into ``CONFIG.at_work`` in the run's folder."""

LIGHT = """
from t5x_harness.runs import local
from t5x_harness.runs import pool
from t5x_harness.workers.zygote import Zygote
pool.worker_for = lambda runtime, **given: Zygote()
local.FACTORY = "hanging:Session"
"""
"""Code that makes the runs of this process's sessions hang in this way."""


class Hanging:
    """A command in its own process group, whose runs are at work and do not end by themselves.

    Args:
      command: the arguments of Python, in a folder with ``hanging.py``.
      folder: the folder with ``hanging.py``.
      configs: the names of the configs whose runs to wait for.
    """

    def __init__(self, command: Sequence[str], folder: Path, *configs: str) -> None:
        self._mark = f"T5X_HARNESS_TEST_{uuid.uuid4().hex}"
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, self._mark: "1", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        self.runs: dict[str, int] = {}
        while len(self.runs) < len(configs):
            assert self._process.poll() is None, self._process.communicate()
            found = {name: folder / f"{name}.at_work" for name in configs}
            self.runs = {
                name: int(text) for name, file in found.items() if file.exists() and (text := file.read_text())
            }
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """The process number of the command."""
        return self._process.pid

    @property
    def processes(self) -> list[int]:
        """All processes that it has started and that are still alive."""
        return processes_with(self._mark)

    def interrupt(self, *, times: int = 1) -> None:
        """Presses Ctrl-C."""
        for _ in range(times):
            os.killpg(self._process.pid, signal.SIGINT)
            time.sleep(0.1)  # two pending signals count as one

    def wait(self) -> None:
        """Waits a moment for the command to act."""
        time.sleep(0.02)

    def end(self) -> tuple[int, str, str]:
        """Returns the exit status and the output; kills the group if it does not end."""
        try:
            printed, said = self._process.communicate(timeout=60)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.communicate()
        return self._process.returncode, printed, said


def processes_with(variable: str) -> list[int]:
    """Returns the processes that have a variable in their environment, which children inherit."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


class _Interrupting:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def dropped() -> None:
    """Raises an interrupt in a destructor, where Python drops exceptions, as can happen in gRPC's channels."""
    _Interrupting()
