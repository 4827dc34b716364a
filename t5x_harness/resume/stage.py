"""The stage ``resume``: a run's training is ended and restarted, and compared with the training that ran through."""

import dataclasses
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.comparison import Expected, compare, scalar_differences
from t5x_harness.resume.history import History
from t5x_harness.resume.repeater import Repeatable, Repeater, TrainingEnd, complete_checkpoints
from t5x_harness.spec import Fault, Finding, Moment, RunSpec, Severity, Stage, StageResult
from t5x_harness.system.closing import Closing

_RESUMED = "resumed"
_SHOWN = 3


@dataclasses.dataclass
class Restarted:
    """A training that was ended and restarted.

    Attributes:
      facts: how it ended each time, by name.
      saved: the steps of the complete checkpoints when it was restarted, ascending.
      end: how it ended in the end.
      saved_itself: whether it ended by itself after a signal, with a checkpoint of its last step.
      finding: the reason that it did not get there; None if it did.
    """

    facts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    saved: list[int] = dataclasses.field(default_factory=list)
    end: TrainingEnd = dataclasses.field(default_factory=lambda: TrainingEnd("", ""))
    saved_itself: bool = False
    finding: Finding | None = None


class Restart(Closing):
    """Ends and restarts a training in a thread, beside the run's own stages.

    Args:
      repeater: repeats the training.
      fault: the fault that ends it.
    """

    def __init__(self, repeater: Repeater, fault: Fault) -> None:
        self.repeater = repeater
        self.fault = fault
        self._outcome = Future[Restarted]()
        threading.Thread(target=self._work, name="restart", daemon=True).start()

    def result(self) -> Restarted:
        """Waits for the end.

        Raises:
          WorkerError: a process ended without a fault.
        """
        return self._outcome.result()

    def close(self) -> None:
        """Ends the process at work. May be called again."""
        self.repeater.close()

    def _work(self) -> None:
        try:
            self._outcome.set_result(_restarted(self.repeater, self.fault))
        except BaseException as error:  # raised when the result is asked for
            self._outcome.set_exception(error)


def _restarted(repeater: Repeater, fault: Fault) -> Restarted:
    done, training = Restarted(), repeater.training
    at_step = _step_of(fault, training)
    if at_step is None:
        last = training.last_step
        message = f"{fault} cannot come: training ends at step {last}, and began at step {training.first_step}"
        done.finding = _no_fault(message, f"order it for a step from {training.first_step} to {last - 1}")
        return done
    if training.is_in_bucket and fault.during in (Moment.SAVE, Moment.COMMIT, Moment.RESTORE):
        message = f"{fault} cannot come: files are seen when a program opens them, and {training.address} is a bucket"
        done.finding = _no_fault(message, "order it for another moment, or for a MODEL_DIR that is a folder")
        return done
    for ordered in (Fault(), fault) if fault.during.follows_restart else (fault,):
        end = repeater.train(_RESUMED, ordered, at_step)
        if not end.moment and end.finding is None:
            message = f"{ordered} did not come: the training went to its end"
            done.finding = _no_fault(message, "order it for a moment and a step that the training has")
        done.finding = done.finding or end.finding
        if done.finding is not None:
            return done
        done.saved = repeater.saved(_RESUMED)
        by_itself = f"; {end.how}" if end.how else ""
        done.saved_itself = bool(end.how)
        done.facts.append(("ended", f"by {ordered.how}, {end.moment}, with {_checkpoints(done.saved)}{by_itself}"))
    if unfinished := repeater.unfinished(_RESUMED):
        done.facts.append(("left unfinished", ", ".join(unfinished)))
    done.end = repeater.train(_RESUMED)
    done.finding = done.end.finding
    return done


def _no_fault(message: str, fix: str) -> Finding:
    return Finding("RES08", Severity.ERROR, Stage.RESUME, message, fix=fix)


def _step_of(fault: Fault, training: Repeatable) -> int | None:
    """Returns the first step at which a fault's moment counts; None if the training does not have the step."""
    first, last = training.first_step, training.last_step
    if fault.at_step is not None:
        return fault.at_step if first <= fault.at_step < last else None
    if training.first_save is None or training.first_save >= last:
        return last - 1
    is_later = fault.during is Moment.STEP or fault.during.follows_restart
    return min(training.first_save + 1, last - 1) if is_later else training.first_save


def compare_run(spec: RunSpec, restart: Restart, metrics: Mapping[str, Mapping[int, float]]) -> StageResult:
    """Compares a training that was ended and restarted with the run's own.

    Args:
      spec: the run.
      restart: the training.
      metrics: the scalars that the run's own training wrote, by tag and step.

    Raises:
      WorkerError: a process ended without a fault.
    """
    report = StageReport(Stage.RESUME, spec.settings.ignore, spec.cwd)
    repeater, training, restarted = restart.repeater, restart.repeater.training, restart.result()
    report.facts += restarted.facts
    if restarted.finding is not None:
        report.end(restarted.finding)
        return report.result()
    reference = History.read(Path(training.record))
    resumed = repeater.history(_RESUMED)
    if not reference.lives or not resumed.lives:
        report.unproved = "the trainer's loop is not train(batch_iter, num_steps, start_step), so it was not recorded"
        report.exercised = 1
        return report.result()
    expected = Expected(
        restarted.saved[-1] if restarted.saved else None,
        training.first_step,
        training.last_step,
        training.saves_dataset,
        training.save_dtype,
        training.hardware_rng,
    )

    def again() -> History:
        repeater.train("again")
        return repeater.history("again")

    compared = compare(reference, resumed, expected, again)
    report.facts += compared.facts.items()
    report.add(compared.findings)
    report.not_checked += compared.not_checked
    report.exercised = resumed.lives[-1].reached - resumed.lives[-1].began
    if not compared.findings and not compared.not_checked:
        # A trainer that answers SIGTERM saves in place of the evaluation that may be due at this step.
        misses_evaluation = restart.fault.during is Moment.EVAL or restarted.saved_itself
        began = resumed.lives[-1].began
        _compare_files(report, metrics, restarted.end, repeater, began, misses_evaluation, restarted.saved_itself)
    return report.result()


def _checkpoints(steps: Iterable[int]) -> str:
    return ", ".join(f"checkpoint_{step}" for step in steps) or "no checkpoint"


def _compare_files(
    report: StageReport,
    metrics: Mapping[str, Mapping[int, float]],
    resumed: TrainingEnd,
    repeater: Repeater,
    began: int,
    misses_evaluation: bool,
    saved_itself: bool,
) -> None:
    """Adds what the metrics and the checkpoints show, if all states are equal after the restart at step ``began``."""
    found = {tag: {int(step): value for step, value in steps.items()} for tag, steps in resumed.metrics.items()}
    wanted = {tag: steps for tag, steps in metrics.items() if not tag.startswith(("eval/", "infer/"))}
    training = repeater.training
    differences: list[str] = []
    lost: list[str] = []
    for tag, step, text in scalar_differences(wanted, found):
        is_evaluation = tag.startswith(("training_eval/", "inference_eval/"))
        is_removed = training.is_in_bucket and step <= began
        is_lost = is_removed or (misses_evaluation and step == began and is_evaluation)
        (lost if is_lost and step not in found.get(tag, {}) else differences).append(text)
    if lost and training.is_in_bucket:
        report.fact("lost", f"the metrics up to step {began}: a restart removes them in a bucket (CKP26)")
    elif lost:
        report.fact("lost", f"the evaluation at step {began}: T5X saves before it evaluates, and does not repeat it")
    if differences:
        more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        message = f"the metrics of a restarted training are others: {'; '.join(differences[:_SHOWN])}{more}"
        report.find("RES05", message, fix="look at what the trainer adds up")
    else:
        report.fact("metrics", f"{len(wanted)} scalars of every step, equal except for times")
    checkpoints = complete_checkpoints(training, Path(training.local))
    if saved_itself:
        checkpoints = sorted({*checkpoints, began})
    if checkpoints != (kept := repeater.saved(_RESUMED)):
        message = f"a restarted training leaves {_checkpoints(kept)}; without a restart, {_checkpoints(checkpoints)}"
        report.find("RES06", message, fix="look at keep, and at what removes checkpoints")
