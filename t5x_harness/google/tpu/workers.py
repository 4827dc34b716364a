"""The environment of the processes of TPU VMs' workers, and how all of them are ended, even detached ones.

A worker has a home, and the devices of the slice. Its processes can leave their parent, session, folder and environment
behind (``env -i setsid sh -c 'cd /; … &'``). They cannot leave a hard resource limit, which their children inherit, and
which only root may raise; a worker's root loses that right. So each process of a TPU VM is marked by its limit on file
locks, which Linux has ignored since 2.4. In a sandbox that does not allow this limit, processes are found only by their
environment.
"""

import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from t5x_harness.google.identity import PROJECT
from t5x_harness.google.product import PRODUCT, SERVER_NAME
from t5x_harness.google.tpu import machine_programs
from t5x_harness.google.tpu.checks import Json
from t5x_harness.google.tpu.remote_shell import write_gcloud_configuration
from t5x_harness.google.vertex.jobs import python_environment
from t5x_harness.google.vertex.jobs.programs import find_programs
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.wire.errors import failed_precondition
from t5x_harness.slices.pod import Pod
from t5x_harness.slices.slice import Slice
from t5x_harness.system.own_folders import foreign_folder
from t5x_harness.variables import TPU_VM_VARIABLE

_LIMIT = 10  # RLIMIT_LOCKS
_MAGIC = 0x1A7
_UID_BITS, _PID_BITS = 32, 22
_UID = re.compile(r"[0-9a-f]{8}")  # a TPU VM's uid, which is also the name of its folder
_POLL_SECONDS = 0.05
_MOST_POLLS = 100


def end_processes(folder: Path) -> None:
    """Kills the processes of the TPU VM with this folder, including any that they start in the meantime."""
    for _ in range(_MOST_POLLS):
        found = [pid for pid, of, uid, _ in _processes() if of == folder or uid == folder.name]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(_POLL_SECONDS)


def end_orphans() -> None:
    """Kills the processes of TPU VMs whose server was killed."""
    for pid, folder, _, server in _processes():
        if _is_orphan(pid, folder, server):
            _kill(pid)


def _is_orphan(pid: int, folder: Path | None, server: int) -> bool:
    process = f"/proc/{pid}"
    if folder is not None:
        # The folder as seen by the process, which may be in a container with other folders.
        return not os.path.exists(f"{process}/root{folder}") and os.path.exists(f"{process}/root")
    with contextlib.suppress(OSError):
        if os.readlink(f"{process}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return False  # in another container, its server's pid is that of a different process
    with contextlib.suppress(OSError):  # no process has the server's pid
        named, _, rest = Path(f"/proc/{server}/stat").read_text().rpartition(") ")
        return not named.endswith(f"({SERVER_NAME}") or rest[0] in "ZX"  # another program, or ended but still listed
    return True


def _processes() -> Iterator[tuple[int, Path | None, str, int]]:
    """Yields the processes of TPU VMs that this user can inspect.

    Each has its pid and the TPU VM's folder from its environment, or None. If the process is marked, its limit yields
    the TPU VM's uid and the pid of the server that started it.
    """
    mark = f"{TPU_VM_VARIABLE}=".encode()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            uid, server = _mark_of(pid)
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            named = (each.removeprefix(mark) for each in variables if each.startswith(mark))
            folder = next((Path(os.fsdecode(each)) for each in named), None)
            if uid or folder:
                yield pid, folder, uid, server


def _mark_of(pid: int) -> tuple[str, int]:
    """Returns the uid and the server's pid from a process's limit; empty and 0 if it is not marked."""
    _, limit = resource.prlimit(pid, _LIMIT)
    if limit < 0 or limit >> (_UID_BITS + _PID_BITS) != _MAGIC:
        return "", 0
    return f"{limit & (1 << _UID_BITS) - 1:08x}", limit >> _UID_BITS & (1 << _PID_BITS) - 1


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


_SHELL = "/bin/bash"
_MARK = f".{PRODUCT}-tpu-vm"
_COORDINATOR = re.compile(r"127\.0\.0\.1:[0-9]+")
_PROJECT = re.compile(r"[a-z0-9][-a-z0-9.:]*")

# A login shell, such as the one that tmux starts, reads this after /etc/profile, which resets PATH.
_PROFILE = """\
# Programs of this worker come before those of the machine.
for folder in {folders}; do
    case ":$PATH:" in *":$folder:"*) ;; *) PATH="$folder:$PATH" ;; esac
done
export PATH
[ -z "${{BASH_VERSION-}}" ] || [ ! -f ~/.bashrc ] || . ~/.bashrc
"""


class Worker:
    """One worker of a TPU VM.

    Attributes:
      node: the full name of its TPU VM.
      folder: the folder of the TPU VM, named by the TPU VM's uid, which no later TPU VM has.
      slice: the TPU VM's slice.
      index: the worker's number.
      addresses: the internal addresses of all workers, in order.
      coordinator: the address at which the workers' processes meet.
      state: the state of the TPU VM.
      accelerator_type: the service's name for the slice.
    """

    def __init__(self, node: Json, slice_: Slice, index: int) -> None:
        self.node: str = node["name"]
        self.folder: str = node["_folder"]
        self.slice = slice_
        self.index = index
        self.addresses = [endpoint["ipAddress"] for endpoint in node["networkEndpoints"]]
        self.coordinator: str = node["_coordinator"]
        self.state: str = node["state"]
        self.accelerator_type: str = node["acceleratorType"]

    @property
    def hostname(self) -> str:
        """The host name in the form of TPU VMs: ``t1v-n-0a1b2c3d-w-0``."""
        return f"t1v-n-{PurePath(self.folder).name}-w-{self.index}"


class Workers:
    """The folders of TPU VMs, with their workers' homes. Any thread may call it.

    A TPU VM's folder belongs to the server that created it. If that folder is gone, or is on another machine, a folder
    of this server replaces it.

    Args:
      folder: the folder for the TPU VMs of this server, which is created when needed.
      programs: the folder of the session's own programs, which come first on PATH.
      settings: the settings of Vertex AI's jobs, whose environment and programs workers share.
    """

    def __init__(self, folder: Path, programs: Path, settings: VertexSettings) -> None:
        self._folder = folder.resolve()
        self._programs = programs
        self._settings = settings
        self._lock = threading.Lock()

    def home(self, worker: Worker) -> Path:
        """Returns the home of a worker, which is created with its Python environment when it is first used."""
        home = self._vm(worker.folder) / str(worker.index) / "home"
        with self._lock:
            _write_programs(_programs_of(home))
            if not home.is_dir():
                _temporary(home).mkdir(exist_ok=True)
                making = Path(tempfile.mkdtemp(prefix="home-", dir=home.parent))
                python_environment.make(making)
                project = worker.node.split("/")[1]
                project = project if _PROJECT.fullmatch(project) else PROJECT
                write_gcloud_configuration(making / ".config" / "gcloud", project)
                first = [*reversed(python_environment.own_programs(home)), _programs_of(home)]
                (making / ".profile").write_text(_PROFILE.format(folders=shlex.join(map(str, first))))
                try:
                    making.rename(home)
                except OSError:  # another server of this state was faster
                    shutil.rmtree(making)
        return home

    def environment(self, worker: Worker, user: str, command: str) -> dict[str, str]:
        """Returns the whole environment of a process on a worker.

        Args:
          worker: the worker.
          user: the user who has logged in.
          command: the command that is run; empty for a shell.

        Raises:
          ApiError: the state was not written by a server.
        """
        home = self.home(worker)
        temporary = str(_temporary(home))
        kept = python_environment.kept(os.environ)
        programs = find_programs(self._settings.options.programs)
        variables = {
            **kept,
            **python_environment.variables(home, kept.get("PATH", os.defpath)),
            **self._settings.environment,
            "HOME": str(home),
            "TMPDIR": temporary,
            "TMUX_TMPDIR": temporary,  # otherwise tmux would use the user's own server
            "CLOUDSDK_CONFIG": str(home / ".config" / "gcloud"),
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
        if not _COORDINATOR.fullmatch(worker.coordinator):
            message = f"the state has {worker.coordinator!r} as the address of the workers, which no server writes"
            raise failed_precondition(f"{worker.addresses[worker.index]}: {message}")
        pod = Pod(worker.coordinator, hosts, worker.index) if hosts > 1 else None
        seen = programs.environment(variables, programs.runs([command]), worker.slice, pod)
        first = [_programs_of(home), self._programs, seen["PATH"]]
        return {**seen, "PATH": os.pathsep.join(map(str, first)), **self._settings.options.job_environment}

    def limit(self, worker: Worker) -> int:
        """Returns the resource limit that marks a worker's processes as started by this server."""
        return (_MAGIC << _PID_BITS | os.getpid()) << _UID_BITS | int(self._vm(worker.folder).name, 16)

    def folder(self, uid: str) -> str:
        """Returns the folder of a new TPU VM."""
        return str(self._folder / uid)

    def begin(self, folder: str) -> None:
        """Creates the folder of a new TPU VM, so that other servers find it."""
        (Path(folder) / _MARK).mkdir(parents=True, exist_ok=True)

    def end(self, folder: str) -> None:
        """Ends all processes of a TPU VM, and removes its disks."""
        found = self._vm(folder)
        end_processes(found)
        shutil.rmtree(found, ignore_errors=True)

    def stop(self, folder: str) -> None:
        """Ends all processes of a TPU VM; its disks stay."""
        end_processes(self._vm(folder))

    def end_left(self, known: Iterable[str]) -> None:
        """Ends processes that a killed server left here, and removes the folders of unknown TPU VMs."""
        self.close()
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name not in {Path(each).name for each in known}:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the processes of all TPU VMs of this server."""
        if self._folder.is_dir():
            for folder in self._folder.iterdir():
                end_processes(folder)

    def _vm(self, folder: str) -> Path:
        """Returns the folder of a TPU VM.

        The state is not trusted: the folder that is used and removed belongs to this server, or was created by another
        server of this user, and no other user can write to it.
        """
        named = Path(folder)
        has_uid = _UID.fullmatch(named.name) is not None
        own = self._folder / (named.name if has_uid else f"{zlib.crc32(os.fsencode(folder)):08x}")
        with contextlib.suppress(OSError):
            if own != named and has_uid and (named / _MARK).is_dir():
                return named if named.resolve() == named and not foreign_folder(named) else own
        return own


def _programs_of(home: Path) -> Path:
    return home.with_name("bin")


def _temporary(home: Path) -> Path:
    return home.with_name("tmp")


def _write_programs(folder: Path) -> None:
    """Writes the replacements of programs that would change this machine."""
    one = folder / ".program"
    text = f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", machine_programs.__file__])} "$0" "$@"\n'
    with contextlib.suppress(OSError):
        if one.read_text() == text and {*machine_programs.NAMES} <= {*os.listdir(folder)}:
            return
    folder.mkdir(parents=True, exist_ok=True)
    for name in machine_programs.NAMES:
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(one.name)
    making = folder / f".program-{os.getpid()}"
    making.write_text(text)
    making.chmod(0o755)
    making.rename(one)
