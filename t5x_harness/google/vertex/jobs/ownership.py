"""Keeps track of which server runs which job if several share one state, and ends jobs whose server is gone."""

import abc
import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from t5x_harness.google.vertex.jobs import endings
from t5x_harness.google.vertex.jobs.endings import JobState, publish
from t5x_harness.google.vertex.jobs.launching import job_folder
from t5x_harness.google.vertex.jobs.logs import JobLog
from t5x_harness.google.vertex.jobs.replicas import JobPlace, Trial
from t5x_harness.google.vertex.services import Services, aspect_key

_ASPECT = "owner"
_SERVERS = "vertex-servers"
# The seconds between two reports of a server that it is alive, after each of which it looks for others' requests, and
# the seconds for which a report counts.
_BEAT_SECONDS = 0.25
_SILENT_SECONDS = 30.0


class RunningJob(abc.ABC):
    """A job that runs in a thread of this server, perhaps for a trial. Its log begins with the notes about its spec."""

    def __init__(self, services: Services, job: Any, notes: Sequence[str], trial: Trial | None = None) -> None:
        self._services = services
        self._job = job
        self._notes = notes
        folder = job_folder(services.settings, job.name)
        folder.mkdir(parents=True)
        project = services.projects.identifier(JobPlace.of(job.name).project)
        self._log = JobLog(job.name, project, services.state, folder, trial)
        self._thread = threading.Thread(target=self._run, name=f"vertex-job-{folder.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @abc.abstractmethod
    def cancel(self) -> None:
        """Cancels the job."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the job immediately, and waits until it has ended. May be called more than once."""

    @abc.abstractmethod
    def _run(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Owner:
    """A server that runs jobs.

    Attributes:
      host: the machine that it runs on.
      started: when its process began, in the kernel's ticks; a later process with the same pid has another value.
    """

    id: str
    host: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> Self:
        return cls(uuid.uuid4().hex, socket.gethostname(), os.getpid(), _started(os.getpid()))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def beat_key(self) -> str:
        """The key under which the server stores the time when it was last alive."""
        return f"{_SERVERS}/{self.id}#beat"

    @property
    def cancel_key(self) -> str:
        """The key of the set of jobs that other servers ask this one to cancel."""
        return f"{_SERVERS}/{self.id}#cancel"


class RunningJobs:
    """The jobs that run in this server, by name, in the order in which they began."""

    def __init__(self) -> None:
        self._jobs: dict[str, RunningJob] = {}  # used from several threads, by operations that are atomic

    def start(self, name: str, job: RunningJob) -> None:
        """Adds a job and starts it. A job that cannot be started is not added."""
        self._jobs[name] = job
        try:
            job.start()
        except BaseException:
            self.remove(name)
            raise

    def remove(self, name: str) -> None:
        del self._jobs[name]

    def all(self) -> list[RunningJob]:
        return list(self._jobs.values())

    def cancel(self, name: str) -> None:
        """Cancels a job if it runs here. The state of a custom job shows it when this returns."""
        if job := self._jobs.get(name):
            job.cancel()

    def end(self, name: str) -> None:
        """Ends a job immediately if it runs here, and waits until its processes are gone."""
        if job := self._jobs.get(name):
            job.close()

    def close(self) -> None:
        """Ends all of them, and waits until they have ended."""
        for job in self.all():
            job.close()


class Ownership:
    """One server's view of which server runs which job.

    Args:
      cancel: cancels a job by its name; called in a thread of this object, for clients of other servers.
    """

    def __init__(self, services: Services, cancel: Callable[[str], None]) -> None:
        self._services = services
        self._state = services.state
        self._cancel = cancel
        self._me = Owner.this()
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None
        self._lock = threading.Lock()

    def take(self, name: str) -> None:
        """Records that this server runs a job, after a first report that it is alive: others would fail the job."""
        with self._lock:
            if self._beating is None and self._is_shared:
                self._beat()
                beating = threading.Thread(target=self._keep_beating, name="vertex-owner", daemon=True)
                beating.start()
                self._beating = beating
        self._state.put(aspect_key(name, _ASPECT), json.dumps(dataclasses.asdict(self._me)).encode())

    def look_after(self, name: str, kind: type[Any]) -> None:
        """Fails a job, if it exists, whose server ended while the job was running, or before it had taken the job."""
        if not self._is_shared:
            return
        job = self._services.resources.find(name, kind)
        if job is None or JobState(job.state).is_final:
            return
        if self._state.get(aspect_key(name, _ASPECT)) is None:
            if self._services.clock.now() - job.create_time.ToNanoseconds() > _SILENT_SECONDS * 1e9:
                publish(self._services, name, kind, JobState.FAILED, endings.NEVER_TAKEN)
        elif (owner := self._owner(name)) is not None and self._is_gone(owner):
            publish(self._services, name, kind, JobState.FAILED, endings.owner_gone(str(owner)))

    def pass_on_cancel(self, name: str) -> bool:
        """Asks the server that runs a job to cancel it; returns False if this server runs it."""
        owner = self._owner(name) if self._is_shared else None
        if owner is None:
            return False
        self._state.add(owner.cancel_key, name)
        return True

    @property
    def _is_shared(self) -> bool:
        return self._state.url != "memory:"

    def _owner(self, name: str) -> Owner | None:
        """Returns the other server that runs a job, or None if this server runs it or none has taken it yet."""
        data = self._state.get(aspect_key(name, _ASPECT))
        if data is None or (found := Owner(**json.loads(data))).id == self._me.id:
            return None
        return found

    def _is_gone(self, owner: Owner) -> bool:
        """Returns whether a server has ended, by its process on this machine, or by its last report."""
        if owner.host == self._me.host:
            return _started(owner.pid) != owner.started
        beat = self._state.get(owner.beat_key)
        return beat is None or time.time() - float(beat) > _SILENT_SECONDS

    def close(self) -> None:
        """Ends the thread, and removes this server's entries from the state. May be called more than once."""
        self._closed.set()
        if self._beating is not None:
            self._beating.join()
            self._beating = None
            with contextlib.suppress(Exception):  # the state may be gone already
                self._state.delete(self._me.beat_key)
                self._state.delete(self._me.cancel_key)

    def _beat(self) -> None:
        self._state.put(self._me.beat_key, f"{time.time()}".encode())

    def _keep_beating(self) -> None:
        while not self._closed.wait(_BEAT_SECONDS):
            with contextlib.suppress(Exception):  # the state may be reachable again next time
                self._beat()
                for name in self._state.members(self._me.cancel_key):
                    self._state.discard(self._me.cancel_key, name)
                    self._cancel(name)


def _started(pid: int) -> str:
    """Returns the time when a process began; empty if the process does not exist, or is only a zombie."""
    try:
        fields = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
