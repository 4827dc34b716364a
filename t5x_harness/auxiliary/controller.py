"""Starts a job for each finished checkpoint and each mixture, until the train job's last checkpoint."""

import dataclasses
import hashlib
from collections.abc import Callable

from t5x_harness.auxiliary.checkpoints import Holds
from t5x_harness.auxiliary.jobs import AuxiliaryError, JobBackend, JobTemplate, PassingError, TrainJob, plain
from t5x_harness.auxiliary.journal import Journal, Record, State, now
from t5x_harness.buckets.checkpoints import FinishedCheckpoint, finished_checkpoints
from t5x_harness.buckets.folders import AnyFolder

_MOST_ATTEMPTS = 3  # for a job that is killed again and again, for example because of too little memory


class Controller:
    """Starts jobs and follows them.

    Its entire state is in the journal, so the next controller continues where a killed one stopped.

    Args:
      template: the parts that the jobs have in common.
      train: the train job.
      place: the train job's folder.
      journal: the records; a lock keeps other controllers away.
      backend: the place where jobs run.
      say: called with a line for each event.
      retry_failed: whether to restart jobs that have failed.
    """

    def __init__(
        self,
        template: JobTemplate,
        train: TrainJob,
        place: AnyFolder,
        journal: Journal,
        backend: JobBackend,
        say: Callable[[str], None],
        *,
        retry_failed: bool = False,
    ) -> None:
        self._template = template
        self._request = template.request
        self._train = train
        self._place = place
        self._journal = journal
        self._backend = backend
        self._say = say
        self._holds = Holds(place, self._request.name)
        self._held = set(self._holds.held())
        self._must_hold = train.removes or self._holds.in_bucket
        self._seen: set[int] = set()
        self._disturbed = ""
        if retry_failed:
            for record in journal.records.values():
                if record.state is State.FAILED:
                    self._again(record)

    @property
    def running(self) -> list[Record]:
        """The records of jobs that have not ended."""
        return [record for record in self._journal.records.values() if not record.state.has_ended]

    def _in_state(self, state: State) -> list[Record]:
        return [record for record in self.running if record.state is state]

    @property
    def last_seen(self) -> int | None:
        """The step of the newest finished checkpoint."""
        return max(self._seen, default=None)

    def advance(self, *, train_has_ended: bool) -> bool:
        """Does everything that can be done now.

        Args:
          train_has_ended: whether it was known before this call that there will be no further checkpoint.

        Returns:
          Whether everything is done: no job is running or waiting, and no further checkpoint will come.

        Raises:
          AuxiliaryError: the controller cannot continue.
          StorageError: the bucket does not exist, or access is refused.
        """
        for record in self._in_state(State.RUNNING):
            self._follow(record)
        found = finished_checkpoints(self._place, self._train.model_dir)
        self._notice(found)
        for record in self._in_state(State.STARTING):
            self._start(record)
        self._start_waiting()
        for step in [step for step in self._held if not self._wanted(step)]:
            self._holds.release(step)
            self._held.discard(step)
        last = self._train.last_step
        no_more = train_has_ended or (last is not None and (self.last_seen or 0) >= last)
        return no_more and not self.running and not self._waiting()

    def _notice(self, found: list[FinishedCheckpoint]) -> None:
        """Registers new checkpoints, and holds those that a job needs if they might be removed."""
        steps = {checkpoint.step for checkpoint in found}
        for step in sorted(steps - self._seen):
            self._say(f"checkpoint_{step} is finished")
        self._seen = steps | self._held
        for checkpoint in found:
            step = checkpoint.step
            if not self._must_hold or step in self._held or not self._wanted(step):
                continue
            if self._holds.take(checkpoint):
                self._held.add(step)
            else:
                self._seen.discard(step)
                for mixture in self._request.mixtures:
                    self._skip(step, mixture, "the train job removed it before it could be held")

    def _wanted(self, step: int) -> bool:
        """Returns whether any job for a checkpoint has not started or has not ended."""
        started = {mixture: record.state for (of, mixture), record in self._journal.records.items() if of == step}
        return not started.keys() >= {*self._request.mixtures} or not all(state.has_ended for state in started.values())

    def _waiting(self) -> list[tuple[int, str]]:
        records = self._journal.records
        return [
            (step, mixture)
            for step in sorted(self._seen)
            for mixture in self._request.mixtures
            if (step, mixture) not in records
        ]

    def _start_waiting(self) -> None:
        for step, mixture in self._waiting():
            if not self._has_room(mixture, self.running):
                continue
            newest = max(other for other, of in self._waiting() if of == mixture)
            if self._request.skip_to_newest and step < newest:
                self._skip(step, mixture, f"checkpoint_{newest} was there before its turn came")
                continue
            record = Record(step, mixture, State.STARTING, started=now())
            self._journal.create(record)
            self._start(record)

    def _has_room(self, mixture: str, others: list[Record]) -> bool:
        """Returns whether another job may run now; evaluations of the same mixture append to the same files."""
        takes_turns = self._template.shares_folder and mixture in {record.mixture for record in others}
        return len(others) < self._request.at_once and not takes_turns

    def _follow(self, record: Record) -> None:
        try:
            status = self._backend.status(record.job)
        except PassingError as error:
            self._note_disturbance(str(error))
            return
        if status.running:
            return
        if status.killed and record.attempt < _MOST_ATTEMPTS:
            self._say(f"{_words(record)} was killed, and is started again")
            self._again(record)
            return
        state = State.SUCCEEDED if status.succeeded else State.FAILED
        self._journal.update(dataclasses.replace(record, state=state, message=status.message, ended=now()))
        self._say(f"{_words(record)} {state}{f': {status.message}' if status.message else ''}")

    def _again(self, record: Record) -> None:
        state, attempt = State.STARTING, record.attempt + 1
        again = dataclasses.replace(record, state=state, attempt=attempt, job="", message="", started=now(), ended="")
        self._journal.update(again)

    def _start(self, record: Record) -> None:
        """Starts a recorded job if there is room, unless an earlier controller has started it."""
        checkpoint = f"{self._train.model_dir}/{self._holds.name_of(record.step)}"
        job = self._template.job(checkpoint, record.step, record.mixture)
        name = self._name(record)
        try:
            found = self._backend.find(name)
            if found is None and not self._has_room(record.mixture, self._in_state(State.RUNNING)):
                return
            if found is None and record.step not in self._seen:
                raise AuxiliaryError(f"the train job has removed checkpoint_{record.step}")
            where = found or self._backend.start(name, job)
        except PassingError as error:
            self._note_disturbance(str(error))
            return
        except AuxiliaryError as error:
            self._journal.update(dataclasses.replace(record, state=State.FAILED, message=str(error), ended=now()))
            self._say(f"{_words(record)} could not be started: {error}")
            return
        self._journal.update(dataclasses.replace(record, state=State.RUNNING, job=where, folder=job.folder))
        self._say(f"{_words(record)} {'is found again' if found else 'started'}: {where}")

    def _skip(self, step: int, mixture: str, why: str) -> None:
        if (step, mixture) not in self._journal.records:
            self._journal.create(Record(step, mixture, State.SKIPPED, message=why, ended=now()))
            self._say(f"checkpoint_{step}, {mixture} is skipped: {why}")

    def _name(self, record: Record) -> str:
        """Returns a name that no other job has, including jobs for other train jobs."""
        own = hashlib.sha256(self._place.address.encode()).hexdigest()[:8]
        return f"{self._request.name}-{plain(record.mixture)}-{record.step}-{own}-{record.attempt}"

    def _note_disturbance(self, text: str) -> None:
        if text != self._disturbed:
            self._say(f"tried again: {text}")
        self._disturbed = text


def _words(record: Record) -> str:
    return f"checkpoint_{record.step}, {record.mixture}"
