"""Ends and restarts a run's training, once for each fault that is ordered, beside the run's own stages."""

import dataclasses
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from t5x_harness.resume.life import TrainingEnd
from t5x_harness.resume.repeater import Repeatable, Repeater
from t5x_harness.slices.slice import SliceError, get_slice
from t5x_harness.spec import Fault, Finding, Hosts, Mode, Moment, RunSpec, Severity, Stage
from t5x_harness.system.closing import Closing


@dataclasses.dataclass
class Restarted:
    """A training that was ended and restarted.

    Attributes:
      fault: the fault that ended it.
      name: its name; see :class:`~t5x_harness.resume.repeater.Repeater`.
      facts: how it ended each time, by name.
      saved: the steps of the complete checkpoints when it was restarted, ascending.
      end: how it ended in the end.
      saved_itself: whether it ended by itself after a signal, with a checkpoint of its last step.
      finding: the reason that it did not get there; None if it did.
    """

    fault: Fault
    name: str
    facts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    saved: list[int] = dataclasses.field(default_factory=list)
    end: TrainingEnd = dataclasses.field(default_factory=lambda: TrainingEnd("", ""))
    saved_itself: bool = False
    finding: Finding | None = None


class Restart(Closing):
    """Ends and restarts a training in a thread, beside the run's own stages, once for each fault.

    Args:
      repeater: repeats the training.
      faults: the faults, each of which ends a training that begins anew.

    Attributes:
      repeater: the argument, as are ``faults``.
    """

    def __init__(self, repeater: Repeater, faults: Sequence[Fault]) -> None:
        self.repeater = repeater
        self.faults = faults
        self._outcomes = [Future[Restarted]() for _ in faults]
        threading.Thread(target=self._work, name="restart", daemon=True).start()

    def result(self, number: int = 0) -> Restarted:
        """Waits for the end of what a fault began.

        Args:
          number: the place of the fault among the faults.

        Raises:
          WorkerError: a process ended without a fault.
        """
        return self._outcomes[number].result()

    def close(self) -> None:
        """Ends the process at work. May be called again."""
        self.repeater.close()

    def _work(self) -> None:
        for number, (fault, outcome) in enumerate(zip(self.faults, self._outcomes, strict=True), start=1):
            name = "resumed" if len(self.faults) == 1 else f"fault-{number:03}"
            try:
                outcome.set_result(_restarted(self.repeater, Restarted(fault, name)))
            except BaseException as error:  # raised when the result is asked for
                outcome.set_exception(error)


FIRST_RESTART = "the first restart"
"""The fact that only the second restart goes on, as in a bucket after an interrupted save (CKP26)."""

MOMENTS: Mapping[Mode, Sequence[Moment]] = {
    Mode.TRAIN: tuple(moment for moment in Moment if moment is not Moment.INFER),
    Mode.EVAL: (Moment.EVAL, Moment.RESTORE),
    Mode.INFER: (Moment.INFER, Moment.SAVE, Moment.COMMIT, Moment.RESTORE),
}
"""The moments of a training, an evaluation and an inference; the first one is the default."""


def _restarted(repeater: Repeater, done: Restarted) -> Restarted:
    fault, training = done.fault, repeater.training
    moments = MOMENTS[training.mode]
    if fault.during not in moments:
        message = f"{fault} cannot come: the mode {training.mode} has no such moment"
        done.finding = _no_fault(message, f"order it for {', '.join(moments)}")
        return done
    if (wrong := _misplaced(fault, repeater.spec)) is not None:
        done.finding = wrong
        return done
    at_step = _step_of(fault, training)
    if at_step is None:
        last = training.last_step
        message = f"{fault} cannot come: training ends at step {last}, and began at step {training.first_step}"
        done.finding = _no_fault(message, f"order it for a step from {training.first_step} to {last - 1}")
        return done
    for ordered in (Fault(during=moments[0]), fault) if fault.during.follows_restart else (fault,):
        end = repeater.train(done.name, ordered, at_step, again=ordered is fault and fault.on is None)
        if not end.moment and end.finding is None:
            message = f"{ordered} did not come before the end"
            done.finding = _no_fault(message, "order it for a moment and a step that comes")
        done.finding = done.finding or end.finding
        if done.finding is not None:
            return done
        by_itself = f"; {end.how}" if end.how else ""
        left = ""
        if training.mode is Mode.TRAIN:
            done.saved = repeater.saved(done.name)
            done.saved_itself = bool(end.how)
            left = f", with {in_words(done.saved)}"
        done.facts.append(("ended", f"by {ordered.how}, {end.moment}{left}{by_itself}"))
    if unfinished := repeater.unfinished(done.name):
        done.facts.append(("left unfinished", ", ".join(unfinished)))
    done.end = repeater.train(done.name, on=fault.on)
    if done.end.finding is not None and unfinished and training.is_in_bucket:
        # T5X's own: it takes the unfinished checkpoint for one, and has removed it when it starts for the second time.
        done.facts.append((FIRST_RESTART, f"died: {done.end.finding.message}"))
        done.end = repeater.train(done.name, on=fault.on)
    done.finding = done.end.finding
    return done


def _misplaced(fault: Fault, spec: RunSpec) -> Finding | None:
    """Returns the finding about a host that the run does not have, or a slice that there is not."""
    hosts = get_slice(spec.slice).hosts if spec.settings.hosts is Hosts.EMULATED else 1
    if fault.host is not None and fault.host >= hosts:
        has = f"{spec.slice} has hosts 0 to {hosts - 1}" if hosts > 1 else "the run is one process"
        fix = "leave the host out, or emulate the hosts of a slice that has it: --hosts (pytest: --t5x-hosts=emulated)"
        return _no_fault(f"{fault} cannot come: {has}", fix)
    if fault.on is not None and not fault.on.isdecimal():
        try:
            get_slice(fault.on)
        except SliceError as error:
            return _no_fault(f"{fault} cannot come: {error}", "name a slice, or a number of partitions")
    return None


def _no_fault(message: str, fix: str) -> Finding:
    return Finding("RES08", Severity.ERROR, Stage.RESUME, message, fix=fix)


def _step_of(fault: Fault, training: Repeatable) -> int | None:
    """Returns the first step at which a fault's moment counts; None if the training does not have the step."""
    first, last = training.first_step, training.last_step
    if training.mode is not Mode.TRAIN:  # how often the model runs shows when it has
        return min(last - 1, 1) if fault.at_step is None else fault.at_step
    if fault.at_step is not None:
        is_last = fault.at_step == last and fault.during in (Moment.SAVE, Moment.COMMIT)
        return fault.at_step if first <= fault.at_step < last or is_last else None
    first_save = min(training.saves, default=last)
    if first_save >= last:
        return last - 1
    is_later = fault.during is Moment.STEP or fault.during.follows_restart
    return min(first_save + 1, last - 1) if is_later else first_save


def in_words(steps: Iterable[int]) -> str:
    """Returns the names of the checkpoints of these steps."""
    return ", ".join(f"checkpoint_{step}" for step in steps) or "no checkpoint"
