"""The stage ``resume``: a run's training is ended and restarted, and compared with the training that ran through."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.agreement import disagreements
from t5x_harness.resume.campaign import FaultOutcome, summarize
from t5x_harness.resume.comparison import Expected, compare, scalar_differences
from t5x_harness.resume.history import History
from t5x_harness.resume.life import TrainingEnd
from t5x_harness.resume.repeater import Repeater, complete_checkpoints
from t5x_harness.resume.restart import Restart, Restarted, in_words
from t5x_harness.resume.results import Results, compare_results
from t5x_harness.spec import Mode, RunSpec, Stage, StageResult
from t5x_harness.workers.errors import WorkerError

_SHOWN = 3


def compare_run(
    spec: RunSpec,
    restart: Restart,
    metrics: Mapping[str, Mapping[int, float]],
    tell: Callable[[int, str], None],
) -> StageResult:
    """Compares a training that was ended and restarted, once for each fault, with the run's own.

    Args:
      spec: the run.
      restart: the training.
      metrics: the scalars that the run's own training wrote, by tag and step.
      tell: is called with the number of each fault of a campaign, and with its result.

    Raises:
      WorkerError: a process ended without a fault; in a campaign, that is a finding.
    """
    comparer = Comparer(spec, restart, metrics)
    report = comparer.new_report()  # before the wait for the training, which is a part of the stage's time
    seed = spec.settings.campaign
    if seed is None:
        return comparer.compare(restart.result(), report).report.result()
    outcomes = []
    for number in range(len(restart.faults)):
        outcomes.append(comparer.compare_in_campaign(number))
        tell(number + 1, outcomes[-1].line)
    summarize(outcomes, seed, report)
    return report.result()


class Comparer:
    """Compares restarted trainings with the run's own.

    Args:
      spec: the run.
      restart: the trainings.
      metrics: the scalars that the run's own training wrote, by tag and step.
    """

    def __init__(self, spec: RunSpec, restart: Restart, metrics: Mapping[str, Mapping[int, float]]) -> None:
        self._spec = spec
        self._restart = restart
        self._repeater = restart.repeater
        self._metrics = metrics

    def new_report(self) -> StageReport:
        """Returns an empty report of the stage."""
        return StageReport(Stage.RESUME, self._spec.settings.ignore, self._spec.cwd)

    def compare_in_campaign(self, number: int) -> FaultOutcome:
        """Compares the training of one fault of several, and removes its folder if nothing was found."""
        fault, report = self._restart.faults[number], self.new_report()
        try:
            restarted = self._restart.result(number)
        except WorkerError as error:
            report.find("RUN07", f"a restarted training did not come to its end: {error}", fix="see its log")
            return FaultOutcome(fault, report)
        outcome = self.compare(restarted, report)
        if not outcome.failed:
            self._repeater.remove(restarted.name)
        return outcome

    def compare(self, restarted: Restarted, report: StageReport) -> FaultOutcome:
        """Compares one training, and adds what is found to a report."""
        repeater, training = self._repeater, self._repeater.training
        report.facts += restarted.facts
        if restarted.finding is not None:
            report.end(restarted.finding)
            return FaultOutcome(restarted.fault, report)
        if training.mode is not Mode.TRAIN:
            resumed_results = self._read(restarted.name, restarted.end)
            repeat = functools.partial(self._results, "again")
            lost = compare_results(self._results("reference"), resumed_results, training.mode, repeat, report)
            return FaultOutcome(restarted.fault, report, lost, "chunk")
        report.add(disagreements(repeater.record(restarted.name), Stage.RESUME))
        if report.failed:
            return FaultOutcome(restarted.fault, report)
        resumed = repeater.history(restarted.name)
        if not self._reference.lives or not resumed.lives:
            report.unproved = (
                "the trainer's loop is not train(batch_iter, num_steps, start_step), so it was not recorded"
            )
            report.exercised = 1
            return FaultOutcome(restarted.fault, report)
        expected = Expected(
            restarted.saved[-1] if restarted.saved else None,
            training.first_step,
            training.last_step,
            training.saves_dataset,
            training.save_dtype,
            training.hardware_rng,
            restarted.fault.on or "",
        )
        compared = compare(self._reference, resumed, expected, self._again)
        report.facts += compared.facts.items()
        report.add(compared.findings)
        report.not_checked += compared.not_checked
        report.exercised = resumed.lives[-1].reached - resumed.lives[-1].began
        if not compared.findings and not compared.not_checked:
            _compare_files(report, self._metrics, restarted, repeater, resumed.lives[-1].began)
        return FaultOutcome(restarted.fault, report, compared.lost)

    @functools.cache  # noqa: B019 - a stage has one comparer
    def _results(self, name: str) -> Results:
        """Returns the results of an uninterrupted inference or evaluation."""
        return self._read(name, self._repeater.train(name))

    def _read(self, name: str, end: TrainingEnd) -> Results:
        return Results.read(self._repeater.local(name), self._repeater.record(name), end.metrics)

    @functools.cached_property
    def _reference(self) -> History:
        return History.read(Path(self._repeater.training.record))

    @functools.cache  # noqa: B019 - a stage has one comparer, and repeats a training once
    def _again(self) -> History:
        self._repeater.train("again")
        return self._repeater.history("again")


def _compare_files(
    report: StageReport,
    metrics: Mapping[str, Mapping[int, float]],
    restarted: Restarted,
    repeater: Repeater,
    began: int,
) -> None:
    """Adds what the metrics and the checkpoints show, if all states are equal after the restart at step ``began``."""
    resumed, saved_itself = restarted.end.metrics, restarted.saved_itself
    found = {tag: {int(step): value for step, value in steps.items()} for tag, steps in resumed.items()}
    wanted = {tag: steps for tag, steps in metrics.items() if not tag.startswith(("eval/", "infer/"))}
    training = repeater.training
    differences: list[str] = []
    lost: list[str] = []
    for tag, step, text in scalar_differences(wanted, found):
        is_evaluation = tag.startswith(("training_eval/", "inference_eval/"))
        is_removed = training.is_in_bucket and step <= began
        # T5X saves first, or a trainer that answers SIGTERM saves instead; and another thread writes what was measured.
        is_lost = is_removed or (step == began and is_evaluation)
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
    if checkpoints != (kept := repeater.saved(restarted.name)):
        message = f"a restarted training leaves {in_words(kept)}; without a restart, {in_words(checkpoints)}"
        report.find("RES06", message, fix="look at keep, and at what removes checkpoints")
