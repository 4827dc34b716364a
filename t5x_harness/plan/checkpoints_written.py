"""The checkpoints that a training run will write: at which steps, how large, and which of them stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_harness.findings.tables import Bytes
from t5x_harness.resolve.output_folder import model_dir
from t5x_harness.spec import Mode

if TYPE_CHECKING:
    from t5x_harness.findings.stage_report import StageReport
    from t5x_harness.plan.planned import Planned
    from t5x_harness.plan.state_shapes import StateShapes


@dataclasses.dataclass(frozen=True)
class WrittenCheckpoints:
    """What a training run leaves in MODEL_DIR.

    Attributes:
      steps: the steps at which it writes checkpoints, ascending.
      period: the number of steps from one to the next.
      between: further steps that the config names.
      keep: how many stay; None for all.
      num_bytes: the size of each, before compression; None if the train state is not known.
    """

    steps: Sequence[int]
    period: int
    between: Sequence[int]
    keep: int | None
    num_bytes: int | None

    @property
    def kept(self) -> int:
        """How many of them are left at the end."""
        return min(len(self.steps), self.keep or len(self.steps))


def describe_written(plan: Planned, report: StageReport) -> None:
    """Adds what is known of the checkpoints to be written, if the run trains."""
    if plan.config.mode is not Mode.TRAIN:
        return
    save = plan.save
    written = written_checkpoints(plan, save)
    if written is None:
        if save is None or not save.period:
            why = "no SaveCheckpointConfig is bound" if save is None else f"the period to save in is {save.period!r}"
            report.fact("checkpoints written", f"none: {why}")
        return
    report.fact("checkpoints written", _steps_text(written))
    report.measure("checkpoints_written", len(written.steps), "checkpoints")
    report.measure("checkpoints_kept", written.kept, "checkpoints")
    folder = model_dir(plan.config)
    if folder is not None and folder.path.startswith("gs://") and not plan.uses_orbax:
        report.not_checked.append(
            "whether the job has the command gcloud: with use_orbax = False, T5X calls `gcloud storage mv` for each "
            f"checkpoint that it has written to {folder.path}"
        )
    if written.num_bytes is not None:
        report.fact("bytes of checkpoints", _bytes_text(written))
        report.measure("checkpoint", written.num_bytes, "bytes")
    if save.save_dataset:
        report.fact("state of the dataset", "saved in every checkpoint, a file for each host that reads data")
    _describe_ignored(plan, save, report)


def written_checkpoints(plan: Planned, save: Any) -> WrittenCheckpoints | None:
    """Returns what a run writes, or None if it writes nothing or its steps are not known.

    Args:
      plan: the planned run.
      save: its SaveCheckpointConfig; None if it has none.
    """
    steps = plan.steps
    if save is None or not save.period or steps is None or steps.first is None or steps.total is None:
        return None
    if steps.total < steps.first:
        return None
    there = plan.start.resumes and plan.uses_orbax
    at = steps_written(steps.first, steps.total, save.period, save.checkpoint_steps or (), first_is_there=there)
    # With orbax, T5X passes the save dtype on to no parameter.
    dtype = None if plan.uses_orbax else save.dtype
    num_bytes = None if plan.shapes is None else checkpoint_bytes(plan.shapes, dtype)
    between = [step for step in at[:-1] if (step - steps.first) % save.period]
    return WrittenCheckpoints(at, save.period, between, save.keep or None, num_bytes)


def steps_written(
    first: int, total: int, period: int, extra: Sequence[int] = (), *, first_is_there: bool = False
) -> list[int]:
    """Returns the steps at which T5X writes a checkpoint: the first, every period from there, the last, and extra ones.

    Args:
      first: the step that training starts from.
      total: the step that it ends at.
      period: ``SaveCheckpointConfig.period``.
      extra: ``SaveCheckpointConfig.checkpoint_steps``.
      first_is_there: the checkpoint of the first step exists already; orbax does not write it again.
    """
    steps = {*range(first, total, period), total, *(step for step in extra if first < step < total)}
    if first_is_there:
        steps.discard(first)
    return sorted(steps)


def checkpoint_bytes(shapes: StateShapes, dtype: str | None) -> int:
    """Returns the bytes of a checkpoint's arrays, before compression.

    Args:
      shapes: the train state, with the optimizer's part.
      dtype: the type that parameters are saved in; None for their own.
    """
    return sum(
        leaf.size * (_size(dtype) if dtype and leaf.path.startswith("target/") else leaf.dtype.itemsize)
        for leaf in shapes.leaves
    )


def _size(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _steps_text(written: WrittenCheckpoints) -> str:
    steps = written.steps
    if not steps:
        return "none: the checkpoint of the last step is there already"
    if len(steps) <= 3:
        text = f"{len(steps)}, at step {' and '.join(map(str, steps))}"
    else:
        text = f"{len(steps)}, from step {steps[0]} each {written.period} steps to {steps[-1]}"
        text += f", and at {', '.join(map(str, written.between))}" if written.between else ""
    deleted = len(steps) - written.kept
    return f"{text}; {f'the last {written.keep} kept, {deleted} deleted' if deleted else 'all kept'}"


def _bytes_text(written: WrittenCheckpoints) -> str:
    assert written.num_bytes is not None
    each = f"{Bytes(written.num_bytes)} each"
    return f"{each}, {Bytes(written.num_bytes * written.kept)} kept, before compression"


def _describe_ignored(plan: Planned, save: Any, report: StageReport) -> None:
    """Adds the settings that T5X accepts and does not use."""
    if not plan.uses_orbax:
        return
    parameters = {leaf.dtype.name for leaf in plan.shapes.parameters} if plan.shapes else set()
    if save.dtype and parameters and parameters != {save.dtype}:
        report.fact("save dtype", f"{save.dtype} is not used by orbax: saved as {' and '.join(sorted(parameters))}")
    if save.keep_dataset_checkpoints and save.save_dataset:
        report.fact("keep_dataset_checkpoints", "not used by orbax: the dataset's state goes with its checkpoint")
