"""The stage ``resume``: trains a run again, kills it, lets it go on, and compares it with the run's own training."""

import contextlib
import dataclasses
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.comparison import Expected, compare, scalar_differences
from t5x_harness.resume.history import History
from t5x_harness.spec import Fault, Finding, Moment, RunSpec, Stage, StageResult
from t5x_harness.system.decode import JsonValue
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import RunProcess

FACTORY = "t5x_harness.resume.training:Training"
_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class Repeatable(JsonValue):
    """A training that the run's own process has done, and that others can do again.

    Attributes:
      bindings: gin statements for the sizes that it ran at, and for what it started from.
      output: the name of the binding of the folder that it writes into.
      address: that folder, as passed to T5X.
      local: the same folder on this machine's disk.
      is_in_bucket: whether it is in a bucket of the emulated Google Cloud.
      standins: the folder of the stand-ins that it read.
      embedding_rows: the number of rows of the model's embedding that they fit; None if it is not known.
      data_axis: the size of the mesh's data axis.
      examples: the number of examples of each task that its evaluations read; None for all.
      first_step: the step that it started from.
      last_step: the step that it ended at.
      record: the file that it was recorded in.
      saves_dataset: whether its checkpoints have the position of the input pipeline.
      save_dtype: the dtype that it saves parameters with; empty for their own.
      hardware_rng: whether dropout uses the hardware's generator.
    """

    bindings: tuple[str, ...]
    output: str
    address: str
    local: str
    is_in_bucket: bool
    standins: str
    embedding_rows: int | None
    data_axis: int
    examples: int | None
    first_step: int
    last_step: int
    record: str
    saves_dataset: bool
    save_dtype: str
    hardware_rng: bool


@dataclasses.dataclass(frozen=True)
class TrainingEnd:
    """How a training ended.

    Attributes:
      moment: what it did when the fault came, in words; empty if none came.
      how: how it ended, in words; empty if it trained to its last step.
      finding: the mistake that ended it; None if none did.
      metrics: the scalars in MODEL_DIR by tag and step, if it trained to its last step.
    """

    moment: str
    how: str
    finding: Finding | None = None
    metrics: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


class Start(Protocol):
    """Starts a process of a run."""

    def __call__(self, factory: str, folder: Path, spec: RunSpec, **argument: Any) -> RunProcess:
        """Starts it with a folder for its log, and further arguments for the factory."""


class Repeater:
    """Repeats a training in processes of their own.

    Args:
      spec: the run.
      training: its training.
      start: starts a process.
      workspace: the run's folder.
      timeout: the seconds that one training may take; None for no limit.
      on_progress: a function that receives progress events.
    """

    def __init__(
        self,
        spec: RunSpec,
        training: Repeatable,
        start: Start,
        workspace: Path,
        timeout: float | None,
        on_progress: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._spec = spec
        self._training = training
        self._start = start
        self._workspace = workspace
        self._timeout = timeout
        self._on_progress = on_progress

    def train(self, name: str, fault: Fault | None = None, at_step: int = 0) -> TrainingEnd:
        """Trains in a folder, from the newest checkpoint in it.

        Args:
          name: the name of the training; each has a folder.
          fault: the fault that ends it; None for none.
          at_step: the first step at which the fault's moment counts.

        Raises:
          WorkerError: the process ended without a fault.
        """
        self._on_progress({"stage": Stage.RESUME.value, "note": f"{name}, {fault or 'to its end'}"})
        folder = self._workspace / Stage.RESUME.value
        spec = dataclasses.replace(
            self._spec.with_settings(full_size=True, resume=False, preempt=None, model_dir=None),
            bindings=(
                *self._spec.bindings,
                *self._training.bindings,
                f"{self._training.output} = {self.address(name)!r}",
            ),
        )
        process = self._start(FACTORY, folder / f"{name}-run", spec, training=self._training.to_json())
        moments: list[str] = []
        with process, contextlib.ExitStack() as timers:

            def note(event: Mapping[str, Any]) -> None:
                if "fault" not in event:
                    return
                moments.append(event["fault"])
                assert fault is not None
                timer = threading.Timer(fault.grace, process.close)
                timers.callback(timer.cancel)
                timer.start()

            try:
                ended: Mapping[str, Any] = process.call(
                    "train",
                    timeout=self._timeout,
                    on_progress=note,
                    record=str(self.record(name)),
                    local=str(self.local(name)),
                    fault=None if fault is None else fault.to_json(),
                    at_step=at_step,
                )
            except RunDied:
                if not moments:
                    raise
                return TrainingEnd(moments[0], "")
        found = Finding.from_json(ended["finding"]) if "finding" in ended else None
        how = f"it ended by itself ({ended['ended']})" if "ended" in ended else ""
        return TrainingEnd("".join(moments), how, found, ended.get("metrics", {}))

    def address(self, name: str) -> str:
        """Returns the folder that a training writes into, as passed to T5X; it is of the same kind as the run's own."""
        return f"{self._training.address}-{name}" if self._training.is_in_bucket else str(self.local(name))

    def local(self, name: str) -> Path:
        """Returns the same folder on this machine's disk."""
        if self._training.is_in_bucket:
            return Path(f"{self._training.local}-{name}")
        return self._workspace / Stage.RESUME.value / name

    def record(self, name: str) -> Path:
        """Returns the file that a training is recorded in."""
        return self._workspace / Stage.RESUME.value / f"{name}.jsonl"

    def history(self, name: str) -> History:
        """Returns what a training recorded."""
        return History.read(self.record(name))

    def unfinished(self, name: str) -> list[str]:
        """Returns the names of the checkpoints in a training's folder that were not written to their end."""
        names = {path.name for path in self.local(name).glob("checkpoint_*")}
        return sorted(names - {f"checkpoint_{step}" for step in self.saved(name)})

    def saved(self, name: str) -> list[int]:
        """Returns the steps of the complete checkpoints in a training's folder, ascending."""
        return complete_checkpoints(self.local(name), in_bucket=self._training.is_in_bucket)


def complete_checkpoints(folder: Path, *, in_bucket: bool) -> list[int]:
    """Returns the steps of the checkpoints in a folder that were written to their end, ascending.

    On a disk, a checkpoint gets its name when it is complete. In a bucket, its last file is ``commit_success.txt``.
    """
    found = [(re.fullmatch(r"checkpoint_(\d+)", path.name), path) for path in folder.glob("checkpoint_*")]
    return sorted(int(m[1]) for m, path in found if m and (not in_bucket or (path / "commit_success.txt").exists()))


def resume_run(
    spec: RunSpec, training: Repeatable, metrics: Mapping[str, Mapping[int, float]], repeater: Repeater
) -> StageResult:
    """Compares a training that is killed with the run's own.

    Args:
      spec: the run.
      training: its training.
      metrics: the scalars that it wrote, by tag and step.
      repeater: repeats it.

    Raises:
      WorkerError: a process ended that was not to be killed.
    """
    report = StageReport(Stage.RESUME, spec.settings.ignore, spec.cwd)
    reference = History.read(Path(training.record))
    if not reference.lives:
        report.unproved = "the trainer's loop is not train(batch_iter, num_steps, start_step), so it was not recorded"
        report.exercised = 1
        return report.result()
    fault = Fault.from_text(spec.settings.preempt) if spec.settings.preempt else Fault()
    at_step = _step_of(fault, training)
    if at_step is None:
        last = training.last_step
        message = f"{fault} cannot come: training ends at step {last}, and began at step {training.first_step}"
        report.find("RES08", message, fix=f"order it for a step from {training.first_step} to {last - 1}")
        return report.result()
    for ordered in (Fault(), fault) if fault.during.follows_restart else (fault,):
        end = repeater.train("resumed", ordered, at_step)
        if end.finding is not None:
            report.end(end.finding)
            return report.result()
        if not end.moment:
            message = f"{ordered} did not come: the training went to its end"
            report.find("RES08", message, fix="order it for a moment and a step that the training has")
            return report.result()
        saved = repeater.saved("resumed")
        by_itself = f"; {end.how}" if end.how else ""
        report.fact("ended", f"by {ordered.how}, {end.moment}, with {_checkpoints(saved)}{by_itself}")
    if unfinished := repeater.unfinished("resumed"):
        report.fact("left unfinished", ", ".join(unfinished))
    through = repeater.train("resumed")
    if through.finding is not None:
        report.end(through.finding)
        return report.result()
    expected = Expected(
        saved[-1] if saved else None,
        training.first_step,
        training.last_step,
        training.saves_dataset,
        training.save_dtype,
        training.hardware_rng,
    )

    def again() -> History:
        repeater.train("again")
        return repeater.history("again")

    resumed = repeater.history("resumed")
    compared = compare(reference, resumed, expected, again)
    for name, value in compared.facts.items():
        report.fact(name, value)
    report.add(compared.findings)
    report.not_checked += compared.not_checked
    report.exercised = resumed.lives[-1].reached - resumed.lives[-1].began
    if not compared.findings and not compared.not_checked:
        life = resumed.lives[-1]
        lost = life.began if fault.during is Moment.EVAL else None
        _compare_files(report, training, metrics, through, repeater, lost)
    return report.result()


def _step_of(fault: Fault, training: Repeatable) -> int | None:
    """Returns the first step at which a fault's moment counts; None if the training does not have the step."""
    first, last = training.first_step, training.last_step
    if fault.at_step is not None:
        return fault.at_step if first <= fault.at_step < last else None
    complete = complete_checkpoints(Path(training.local), in_bucket=training.is_in_bucket)
    saved = next((step for step in complete if first < step < last), None)
    if saved is None:
        return last - 1
    return min(saved + 1, last - 1) if fault.during is Moment.STEP or fault.during.follows_restart else saved


def _checkpoints(steps: Iterable[int]) -> str:
    return ", ".join(f"checkpoint_{step}" for step in steps) or "no checkpoint"


def _compare_files(
    report: StageReport,
    training: Repeatable,
    metrics: Mapping[str, Mapping[int, float]],
    resumed: TrainingEnd,
    repeater: Repeater,
    lost: int | None,
) -> None:
    """Adds what the metrics and the checkpoints show, if all states are equal.

    ``lost`` is the step whose evaluation the fault has ended; None for none.
    """
    found = {tag: {int(step): value for step, value in steps.items()} for tag, steps in resumed.metrics.items()}
    wanted = {tag: steps for tag, steps in metrics.items() if not tag.startswith(("eval/", "infer/"))}
    differences = []
    for tag, step, text in scalar_differences(wanted, found):
        if step != lost or not tag.startswith(("training_eval/", "inference_eval/")) or step in found.get(tag, {}):
            differences.append(text)
    if lost is not None:
        report.fact("lost", f"the evaluation at step {lost}: T5X saves before it evaluates, and does not repeat it")
    if differences:
        more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        message = f"the metrics of a restarted training are others: {'; '.join(differences[:_SHOWN])}{more}"
        report.find("RES05", message, fix="look at what the trainer adds up")
    else:
        report.fact("metrics", f"{len(wanted)} scalars of every step, equal except for times")
    checkpoints = complete_checkpoints(Path(training.local), in_bucket=training.is_in_bucket)
    if checkpoints != (kept := repeater.saved("resumed")):
        message = f"a restarted training leaves {_checkpoints(kept)}; without a restart, {_checkpoints(checkpoints)}"
        report.find("RES06", message, fix="look at keep, and at what removes checkpoints")
