"""What the processes of a TPU VM's workers run in: a home of its own for each worker, and the slice's devices."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from t5x_harness.google.tpu.vms import Worker
from t5x_harness.google.vertex.jobs import python_environment
from t5x_harness.google.vertex.jobs.programs import find_programs
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.slices.pod import Pod
from t5x_harness.variables import TPU_VM_VARIABLE

_SHELL = "/bin/bash"
_MARK = ".t5x-harness-tpu-vm"
_LOOK_SECONDS = 0.05
_LOOKS = 100


class Workers:
    """The folders of TPU VMs, with their workers' homes. Any thread may call it.

    A TPU VM's folder is on the server that made it. Where that is gone, or is another machine's, one of this server's
    own stands for it.

    Args:
      folder: for those of this server; it is made when the first is needed.
      settings: what jobs of Vertex AI are run with, too: the environment, and what stands for T5X.
    """

    def __init__(self, folder: Path, settings: VertexSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = threading.Lock()

    def home(self, worker: Worker) -> Path:
        """Returns the home folder of a worker, which is made with its Python environment when it is first used."""
        home = self._vm(worker.folder) / str(worker.index) / "home"
        with self._lock:
            if not home.is_dir():
                making = home.with_name("home.new")
                shutil.rmtree(making, ignore_errors=True)
                home.with_name("tmp").mkdir(parents=True, exist_ok=True)
                making.mkdir()
                python_environment.make(making)
                making.rename(home)
        return home

    def environment(self, worker: Worker, user: str, command: str) -> dict[str, str]:
        """Returns the whole environment of a process on a worker.

        Args:
          user: who has logged in.
          command: that is run; empty for a shell.
        """
        home = self.home(worker)
        kept = python_environment.kept(os.environ)
        programs = find_programs(self._settings.options.programs)
        variables = {
            **kept,
            **python_environment.variables(home, kept.get("PATH", os.defpath)),
            **self._settings.environment,
            "HOME": str(home),
            "TMPDIR": str(home.with_name("tmp")),
            "USER": user,
            "LOGNAME": user,
            "SHELL": _SHELL,
            "HOSTNAME": worker.hostname,
            "TPU_WORKER_ID": str(worker.index),
            "TPU_WORKER_HOSTNAMES": ",".join(worker.addresses),
            "TPU_ACCELERATOR_TYPE": worker.accelerator_type,
            TPU_VM_VARIABLE: str(self._vm(worker.folder)),
        }
        hosts = len(worker.addresses)
        pod = Pod(worker.coordinator, hosts, worker.index) if hosts > 1 else None
        seen = programs.environment(variables, programs.runs([command]), worker.slice, pod)
        return {**seen, **self._settings.options.job_environment}

    def folder(self, uid: str) -> str:
        """Returns the folder of a new TPU VM."""
        return str(self._folder / uid)

    def begin(self, folder: str) -> None:
        """Makes the folder of a new TPU VM, so that other servers find it."""
        (Path(folder) / _MARK).mkdir(parents=True, exist_ok=True)

    def end(self, folder: str) -> None:
        """Ends all processes of a TPU VM at once, and removes what they have left."""
        found = self._vm(folder)
        end_processes(found)
        shutil.rmtree(found, ignore_errors=True)

    def stop(self, folder: str) -> None:
        """Ends all processes of a TPU VM at once; its disks stay."""
        end_processes(self._vm(folder))

    def end_left(self, known: Iterable[str]) -> None:
        """Ends what a server that was killed has left here, and removes what is of no TPU VM that is known."""
        self.close()
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name not in {Path(each).name for each in known}:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the processes of all TPU VMs that have their folders here."""
        if self._folder.is_dir():
            for folder in self._folder.iterdir():
                end_processes(folder)

    def _vm(self, folder: str) -> Path:
        # A state may have been written by others: what is removed is a folder of this kind only.
        return Path(folder) if (Path(folder) / _MARK).is_dir() else self._folder / Path(folder).name


def end_processes(folder: Path) -> None:
    """Kills the processes whose environment says that they are of the TPU VM with this folder, and waits for it.

    A process that a killed one has just started is found by the next look.
    """
    if not folder.is_dir():
        return
    for _ in range(_LOOKS):
        found = [pid for pid, of in _processes() if of == folder]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(_LOOK_SECONDS)


def end_orphans() -> None:
    """Kills the processes of TPU VMs whose folder is gone: those of a server that was killed."""
    for pid, folder in _processes():
        # As the process sees it: it may be in a container, whose folders are not here.
        if not os.path.exists(f"/proc/{pid}/root{folder}") and os.path.exists(f"/proc/{pid}/root"):
            _kill(pid)


def _processes() -> Iterator[tuple[int, Path]]:
    """Yields the processes of TPU VMs that this user may see, each with its TPU VM's folder."""
    mark = f"{TPU_VM_VARIABLE}=".encode()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(mark):
                    yield pid, Path(os.fsdecode(variable.removeprefix(mark)))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
