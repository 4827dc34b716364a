"""Jobs as processes on this machine, which outlive the controller that starts them."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from t5x_harness.auxiliary.jobs import T5X_MAIN, AuxiliaryError, AuxiliaryJob, AuxiliaryRequest, JobStatus
from t5x_harness.runtime.choice import program_environment, runtime_of
from t5x_harness.slices.slice import get_slice

_NICE = 10
_SHOWN = 2000  # bytes from the end of a log
_KILLED = {128 + each: each.name for each in (signal.SIGHUP, signal.SIGKILL, signal.SIGTERM)}
"""A shell's exit statuses for commands that were ended from outside, for example by the out-of-memory killer."""

_SCRIPT = 'status=$1; shift; "$@"; echo $? > "$status.new"; mv "$status.new" "$status"'
"""Runs a command and writes its exit status to a file, because a later controller is not the command's parent."""


class Processes:
    """Commands that run in their own sessions, each with a folder for its log and exit status.

    A running command holds a lock on a file in its folder. The kernel releases the lock however the command ends, so
    its state is known without its parent, and it is never started twice.

    Args:
      folder: the parent of the commands' folders.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, name: str, words: Sequence[str], environment: Mapping[str, str], cwd: str) -> str:
        """Starts a command unless it is already running, and returns where it runs."""
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        where = f"{socket.gethostname()}:{folder}"
        with open(folder / "lock", "w") as lock, open(folder / "log", "ab") as log:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return where
            (folder / "status").unlink(missing_ok=True)
            process = subprocess.Popen(
                ["sh", "-c", _SCRIPT, "sh", str(folder / "status"), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment,
                start_new_session=True,
                pass_fds=(lock.fileno(),),
            )
        self._started.append(process)
        (folder / "pid").write_text(f"{process.pid}\n")
        return where

    def find(self, name: str) -> str | None:
        """Returns where a command runs or has run; None if it was never started."""
        folder = self._folder / name
        return f"{socket.gethostname()}:{folder}" if (folder / "lock").exists() else None

    def status(self, where: str) -> JobStatus:
        """Looks up the status of a command.

        Raises:
          AuxiliaryError: the command runs on another machine.
        """
        host, _, path = where.partition(":")
        if host != socket.gethostname():
            raise AuxiliaryError(f"a job runs on {host}, and cannot be seen from here: start the controller there")
        folder = Path(path)
        if _is_running(folder) and not (folder / "status").exists():
            return JobStatus(running=True)
        self._started = [process for process in self._started if process.poll() is None]
        try:
            status = int((folder / "status").read_text())
        except (FileNotFoundError, ValueError):
            return JobStatus(killed=True, message=f"it was killed; its log is {folder}/log")
        if status == 0:
            return JobStatus(succeeded=True)
        if status in _KILLED:
            return JobStatus(killed=True, message=f"it was killed ({_KILLED[status]}); its log is {folder}/log")
        return JobStatus(message=f"exit status {status}; the end of {folder}/log:\n{_end_of(folder / 'log')}")


class LocalJobs(Processes):
    """Auxiliary jobs as processes on this machine, each with an emulated slice as under ``t5x-harness exec``.

    Args:
      request: the request.
      folder: the folder for logs and exit statuses.

    Raises:
      SliceError: there is no such slice.
      RuntimeChoiceError: there is no such T5X.
    """

    def __init__(self, request: AuxiliaryRequest, folder: Path) -> None:
        super().__init__(folder)
        self._request = request
        spec = request.train
        path = [*(os.path.join(spec.cwd, each) for each in spec.python_path), os.path.abspath(spec.cwd)]
        inherited = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*path, os.environ.get("PYTHONPATH")]))}
        slice_ = get_slice(request.slice)
        self._environment = program_environment(slice_, runtime_of(spec), spec.runtime, inherited)

    def start(self, name: str, job: AuxiliaryJob) -> str:
        """Starts the process of a job."""
        nice = ["nice", "-n", str(_NICE)] if self._request.low_priority else []
        module = self._request.module
        mode = [f"--run_mode={job.mode}"] if module == T5X_MAIN else []
        words = [*nice, sys.executable, "-m", module, *mode, *job.arguments]
        return self.run(name, words, self._environment, job.spec.cwd)


def _is_running(folder: Path) -> bool:
    with open(folder / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _end_of(log: Path) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - _SHOWN))
        return file.read().decode(errors="replace").rstrip()
