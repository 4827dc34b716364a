"""Carries out the decisions about a custom job: runs its processes, writes its log, and publishes its state."""

import contextlib
import enum
import os
import queue
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from t5x_harness.google.vertex.faults import AVAILABLE, MODULE, NEEDED, VertexFault, VertexFaultKind, no_room
from t5x_harness.google.vertex.jobs import endings, machine, python_environment
from t5x_harness.google.vertex.jobs.endings import JobState, publish
from t5x_harness.google.vertex.jobs.guarded import Guarded, Task, UnitSaid, Watched
from t5x_harness.google.vertex.jobs.launching import Attempt, CannotLaunch, notes_on, policy_of
from t5x_harness.google.vertex.jobs.machine import Command, Event, JobEvent, Progress
from t5x_harness.google.vertex.jobs.ownership import RunningJob
from t5x_harness.google.vertex.jobs.replicas import JobPlace, Trial, replica_of
from t5x_harness.google.vertex.services import Services

_STRIKES: tuple[VertexFaultKind, ...] = ("preempt", "internal", "expire", "oom", "exceed_hbm")
"""The faults of running jobs."""


# Both are documented in the API's reference.
_WEEK = 7 * 24 * 3600.0
_DAY = 24 * 3600.0

WARNED_SECONDS = 30.0
"""The seconds from SIGTERM to SIGKILL for canceled or preempted processes, as on a preempted machine."""

ENDED_SECONDS = 2.0
"""The seconds from SIGTERM to SIGKILL for processes whose job has ended."""


class _Order(enum.Enum):
    QUIT = "the server ends"
    SETTLE = "a job that has ended was seen running for long enough"
    LOOK = "a fault may have been armed for the job"
    STRIKE = "the job's fault takes effect"


_Message = Event | _Order


def _seconds(duration: Any) -> float:
    return float(duration.ToNanoseconds() / 1e9)


class Deadlines:
    """The scheduled events. Each has a name, by which it can be rescheduled or canceled."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[float, _Message]] = {}

    def set(self, name: str, seconds: float, what: _Message) -> None:
        """Schedules an event to happen after a number of seconds."""
        self._at[name] = (time.monotonic() + seconds, what)

    def clear(self, *names: str) -> None:
        """Cancels events; unknown names are ignored."""
        for name in names:
            self._at.pop(name, None)

    def __contains__(self, name: object) -> bool:
        """Returns whether an event with this name is still scheduled."""
        return name in self._at

    def seconds(self) -> float | None:
        """Returns the seconds until the next event, or None if there is none."""
        return max(0.0, min(at for at, _ in self._at.values()) - time.monotonic()) if self._at else None

    def due(self) -> list[_Message]:
        """Removes the events that are due, and returns them in the order of their times."""
        now = time.monotonic()
        ready = sorted((at, name) for name, (at, _) in self._at.items() if at <= now)
        return [self._at.pop(name)[1] for _, name in ready]


class Driver(RunningJob):
    """Runs one custom job in a separate thread.

    Args:
      ended: called in the driver's thread, with the job's name, once the job has ended and its state shows it.
      start: starts a process.
    """

    def __init__(
        self,
        services: Services,
        job: Any,
        ended: Callable[[str], None],
        *,
        trial: Trial | None,
        notes: Sequence[str],
        start: Callable[[Task], Guarded],
    ) -> None:
        super().__init__(services, job, [*notes, *notes_on(job.job_spec, services.settings)], trial)
        self._policy = policy_of(job.job_spec, services.settings)
        self._ended = ended
        self._trial = trial
        self._options = services.settings.options
        self._progress = Progress()
        self._tasks: dict[str, Task] = {}
        self._stopped: set[str] = set()
        self._fault: VertexFault | None = None
        self._deadlines = Deadlines()
        self._inbox: queue.SimpleQueue[tuple[_Message, threading.Event]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._watched = Watched(start)

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError:  # no further thread can be started
            self._watched.close()
            raise

    def cancel(self) -> None:
        """Cancels the job, and returns once its state shows it."""
        self._post(JobEvent.CANCEL_ASKED)

    def look_for_faults(self) -> None:
        """Looks for a fault that was armed after the job began."""
        self._post(_Order.LOOK)

    def close(self) -> None:
        self._post(_Order.QUIT)
        self._thread.join()

    def _post(self, message: _Message) -> None:
        """Sends the thread a message, and waits until the thread has handled it or has ended."""
        taken = threading.Event()
        self._inbox.put((message, taken))
        self._watched.wake()
        if not self._over.is_set():
            taken.wait()

    def _run(self) -> None:
        self._deadlines.set("admitted", self._options.queued_seconds, JobEvent.ADMITTED)
        try:
            for note in self._notes:
                self._log.service(note, "WARNING")
            while not self._over.is_set():
                for message, taken in self._happened():
                    try:
                        self._take(message)
                    finally:
                        taken.set()
        except Exception as error:
            traceback.print_exc()  # for the server's log; clients get only helpful details
            with contextlib.suppress(Exception):  # if the state itself is gone, no client can be informed
                self._finish(JobState.FAILED, endings.unable(f"{type(error).__name__}: {error}"))
        finally:
            self._over.set()
            self._watched.close()
            while not self._inbox.empty():
                self._inbox.get()[1].set()
            self._ended(self._job.name)

    def _happened(self) -> Iterator[tuple[_Message, threading.Event]]:
        """Waits until something happens, and yields it with the event to set once it is handled."""
        nobody = threading.Event()
        for each in self._watched.wait(self._deadlines.seconds()):
            if isinstance(each, UnitSaid):
                self._log.write(each.unit, each.lines, each.severity)
                for hint in python_environment.hints(each.lines):
                    self._log.service(hint, "WARNING")
                if self._fault and self._fault.output and any(re.search(self._fault.output, s) for s in each.lines):
                    yield _Order.STRIKE, nobody
            else:
                if each.status and each.unit not in self._stopped:
                    replica, _, host = each.unit.partition(".")
                    if host:  # the service names only the replica
                        exited = f"Host {host} of the replica {replica} exited with a status of {each.status}."
                        self._log.service(exited, "WARNING")
                    if each.status == endings.KILLED:
                        self._log.service(endings.KILLED_NOTE, "WARNING")
                yield each, nobody
        for due in self._deadlines.due():
            yield due, nobody
        while not self._inbox.empty():
            yield self._inbox.get()

    def _take(self, message: _Message) -> None:
        if self._over.is_set():
            return
        match message:
            case _Order.QUIT:
                self._finish(JobState.FAILED, endings.owner_gone(f"process {os.getpid()}"))
            case _Order.SETTLE:
                if self._progress.state.is_final:
                    self._finish(self._progress.state, self._progress.error)
            case _Order.LOOK:
                self._look()
            case _Order.STRIKE:
                self._strike()
            case _:
                self._advance(message)

    def _advance(self, event: Event) -> None:
        before = self._progress
        self._progress, commands = machine.advance(before, event, self._policy)
        now = self._progress
        if now.state.is_final and not before.state.is_final:
            self._deadlines.clear("admitted", "provisioned", "waited", "timeout", "fault")
            # Clients see the end only after the job has been shown as running for the promised time.
            if "shown" not in self._deadlines or now.state is JobState.CANCELLED:
                self._finish(now.state, now.error)
        elif (now.state, now.attempt) != (before.state, before.attempt):
            publish(self._services, self._job.name, type(self._job), now.state)
            self._entered(now.state)
        for command in commands:
            self._do(command)

    def _entered(self, state: JobState) -> None:
        self._deadlines.clear("provisioned", "waited")
        if said := endings.MESSAGES.get(state):
            self._log.service(said)
        if state is JobState.PENDING:
            self._provide()
        elif state is JobState.RUNNING and self._progress.attempt == 1:
            self._deadlines.set("shown", self._options.running_seconds, _Order.SETTLE)
            timeout = _seconds(self._job.job_spec.scheduling.timeout) or _WEEK
            self._deadlines.set("timeout", timeout, JobEvent.RUN_TOO_LONG)

    def _provide(self) -> None:
        """Prepares the processes, and schedules the time at which they get machines."""
        attempt = Attempt(self._job.name, self._job.job_spec, self._services.settings, self._trial)
        try:
            self._tasks = {unit: attempt.task(unit) for unit in attempt.units}
        except CannotLaunch as error:
            self._advance(machine.CannotRun(endings.unable(str(error))))
            return
        scheduling = self._job.job_spec.scheduling
        # Jobs with any other strategy fail if no machines are available.
        waits = scheduling.strategy == dict(type(scheduling).Strategy.items()).get("FLEX_START")
        longest = _seconds(scheduling.max_wait_duration) if scheduling.HasField("max_wait_duration") else _DAY
        if waits and longest and self._progress.attempt == 1:
            self._deadlines.set("waited", longest, JobEvent.WAITED_TOO_LONG)
        fault = self._services.faults.take_for(self._job.display_name, "stockout")
        if fault is None:
            self._deadlines.set("provisioned", self._options.pending_seconds, JobEvent.PROVISIONED)
        elif not waits:
            none = endings.no_capacity(JobPlace.of(self._job.name).region)
            self._deadlines.set("provisioned", fault.seconds, machine.CannotRun(none))
        elif fault.seconds:
            self._deadlines.set("provisioned", fault.seconds, JobEvent.PROVISIONED)

    def _do(self, command: Command) -> None:
        for unit in sorted(command.units):
            if isinstance(command, machine.StartUnits):
                self._stopped.discard(unit)
                self._watched.start(unit, self._tasks[unit])
            else:
                self._stopped.add(unit)
                self._watched.stop(unit, WARNED_SECONDS if command.warned else ENDED_SECONDS)
        if isinstance(command, machine.StartUnits):
            self._look()

    def _look(self) -> None:
        """Takes the fault for the processes that are now running, if one is armed."""
        if self._progress.state is not JobState.RUNNING or self._fault is not None:
            return
        self._fault = self._services.faults.take_for(self._job.display_name, *_STRIKES)
        if self._fault is not None and not self._fault.output:
            self._deadlines.set("fault", self._fault.seconds, _Order.STRIKE)

    def _strike(self) -> None:
        fault, self._fault = self._fault, None
        if fault is None:
            return
        unit = next((unit for unit in sorted(self._progress.live) if replica_of(unit) == fault.replica), None)
        if fault.kind in ("internal", "expire"):
            self._advance(JobEvent.INTERNAL_FAILURE if fault.kind == "internal" else JobEvent.EXPIRED)
        elif unit is not None and fault.kind == "oom":
            self._advance(machine.OutOfMemory(unit))
        elif unit is not None and fault.kind == "exceed_hbm":
            self._log.write(unit, [fault.message or no_room(NEEDED, AVAILABLE, MODULE)], "ERROR")
            self._advance(machine.CannotRun(endings.exited(unit, 1)))  # not a crash that may be transient
        elif unit is not None:
            self._log.service(f"The replica {fault.replica} is preempted.", "WARNING")
            self._advance(machine.Lost(unit))

    def _finish(self, state: JobState, error: endings.JobFailure | None) -> None:
        if error is not None:
            self._log.service(error.text(self._job.name), "ERROR")
        self._log.service(endings.MESSAGES[state], "ERROR" if error else "INFO")
        publish(self._services, self._job.name, type(self._job), state, error)
        if self._fault is not None:  # the job ended before it was hit, so another job may get it
            self._services.faults.give_back(self._fault)
        self._over.set()
