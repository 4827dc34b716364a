"""The stage ``resume``: trains a run again, kills it, lets it go on, and compares it with the run's own training."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resume.comparison import Expected, compare, scalar_differences
from t5x_harness.resume.history import History
from t5x_harness.spec import Finding, RunSpec, Stage, StageResult
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

    def train(self, name: str, kill_at: int | None = None) -> Mapping[str, Any]:
        """Trains in a folder, from the newest checkpoint in it.

        Args:
          name: the name of the training; each has a folder.
          kill_at: the step at which the process is killed; None for never.

        Returns:
          What :meth:`~t5x_harness.resume.training.Training.train` returns; empty if the process was killed.

        Raises:
          WorkerError: the process ended otherwise.
        """
        self._on_progress(
            {"stage": Stage.RESUME.value, "note": name if kill_at is None else f"{name} to step {kill_at}"}
        )
        folder = self._workspace / Stage.RESUME.value
        spec = dataclasses.replace(
            self._spec.with_settings(full_size=True, resume=False, model_dir=None),
            bindings=(
                *self._spec.bindings,
                *self._training.bindings,
                f"{self._training.output} = {self.address(name)!r}",
            ),
        )
        process = self._start(FACTORY, folder / f"{name}-run", spec, training=self._training.to_json())
        with process:
            try:
                ended: Mapping[str, Any] = process.call(
                    "train",
                    timeout=self._timeout,
                    record=str(self.record(name)),
                    local=str(self.local(name)),
                    kill_at=kill_at,
                )
            except RunDied:
                if kill_at is None or not self.record(name).exists():
                    raise
                return {}
        return ended

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
    complete = complete_checkpoints(Path(training.local), in_bucket=training.is_in_bucket)
    inside = [step for step in complete if training.first_step < step < training.last_step]
    last = training.last_step - 1
    kill_at = min(inside[0] + 1, last) if inside else last
    if "finding" in (ended := repeater.train("resumed", kill_at)):
        report.end(Finding.from_json(ended["finding"]))
        return report.result()
    saved = repeater.saved("resumed")
    report.fact("killed", f"before step {kill_at + 1}, with {_checkpoints(saved)}")
    ended = repeater.train("resumed")
    if "finding" in ended:
        report.end(Finding.from_json(ended["finding"]))
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
        _compare_files(report, training, metrics, ended, repeater)
    return report.result()


def _checkpoints(steps: Iterable[int]) -> str:
    return ", ".join(f"checkpoint_{step}" for step in steps) or "no checkpoint"


def _compare_files(
    report: StageReport,
    training: Repeatable,
    metrics: Mapping[str, Mapping[int, float]],
    ended: Mapping[str, Any],
    repeater: Repeater,
) -> None:
    """Adds what the metrics and the checkpoints show, if all states are equal."""
    found = {tag: {int(step): value for step, value in steps.items()} for tag, steps in ended["metrics"].items()}
    wanted = {tag: steps for tag, steps in metrics.items() if not tag.startswith(("eval/", "infer/"))}
    if differences := list(scalar_differences(wanted, found)):
        more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        message = f"the metrics of a restarted training are others: {'; '.join(differences[:_SHOWN])}{more}"
        report.find("RES05", message, fix="look at what the trainer adds up")
    else:
        report.fact("metrics", f"{len(wanted)} scalars of every step, equal except for times")
    checkpoints = complete_checkpoints(Path(training.local), in_bucket=training.is_in_bucket)
    if checkpoints != (kept := repeater.saved("resumed")):
        message = f"a restarted training leaves {_checkpoints(kept)}; without a restart, {_checkpoints(checkpoints)}"
        report.find("RES06", message, fix="look at keep, and at what removes checkpoints")
