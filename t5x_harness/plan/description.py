"""Describes a planned run: slice, mesh, batches, steps, learning rate, checkpoints, arrays, memory."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.text import Bytes, columns
from t5x_harness.plan.arrays import array_tables, fold, module_table
from t5x_harness.plan.checkpoint_fit import CheckpointFit
from t5x_harness.plan.golden import CHECKPOINT_FITS
from t5x_harness.plan.planned import Planned, describe_batches, describe_evaluation
from t5x_harness.plan.state_shapes import StateShapes
from t5x_harness.plan.stored_tree import StoredLayout
from t5x_harness.report.table import PREEMPTION
from t5x_harness.resolve.output_folder import model_dir
from t5x_harness.slices.mesh import mesh_text

_MOST_TURNS = 8
"""The largest number of a learning rate's turns to show; a cyclic rate can have any number."""


def _written(plan: Planned, report: StageReport) -> None:
    """Adds the facts about the checkpoints to be written, if the run trains."""
    save, steps = plan.save, plan.steps
    if steps is None:
        return
    if save is None or not save.period:
        why = "no SaveCheckpointConfig is bound" if save is None else f"the period to save in is {save.period!r}"
        report.fact("checkpoints written", f"none: {why}")
        return
    if steps.first is None or steps.total is None or steps.total < steps.first:
        return
    there = plan.start.resumes and plan.uses_orbax
    at = steps_written(steps.first, steps.total, save.period, save.checkpoint_steps or (), first_is_there=there)
    kept = min(len(at), save.keep or len(at))
    report.fact("checkpoints written", _steps_text(at, [s for s in at[:-1] if (s - steps.first) % save.period], save))
    report.measure("checkpoints_written", len(at), "checkpoints")
    report.measure("checkpoints_kept", kept, "checkpoints")
    _preempted(plan, min(save.period, steps.total - steps.first), report)
    folder = model_dir(plan.config)
    if folder is not None and folder.path.startswith("gs://") and not plan.uses_orbax:
        report.not_checked.append(
            "whether the job has the command gcloud: with use_orbax = False, T5X calls `gcloud storage mv` for each "
            f"checkpoint that it has written to {folder.path}"
        )
    if plan.shapes is not None:
        # With orbax, T5X applies the save dtype to no parameter.
        each = checkpoint_bytes(plan.shapes, None if plan.uses_orbax else save.dtype)
        report.fact("bytes of checkpoints", f"{Bytes(each)} each, {Bytes(each * kept)} kept, before compression")
        report.measure("checkpoint", each, "bytes")
    if save.save_dataset:
        report.fact("state of the dataset", "saved in every checkpoint, a file for each host that reads data")
    parameters = {leaf.dtype.name for leaf in plan.shapes.parameters} if plan.shapes and plan.uses_orbax else set()
    if save.dtype and parameters and parameters != {save.dtype}:
        report.fact("save dtype", f"{save.dtype} is not used by orbax: saved as {' and '.join(sorted(parameters))}")
    if save.keep_dataset_checkpoints and save.save_dataset and plan.uses_orbax:
        report.fact("keep_dataset_checkpoints", "not used by orbax: the dataset's state goes with its checkpoint")


def _preempted(plan: Planned, most: int, report: StageReport) -> None:
    """Adds how many steps a preemption costs: up to ``most``, unless the trainer saves on SIGTERM."""
    if most < 1:
        return
    with_it, without = "at most 1 step", f"up to {most} step{'s' * (most > 1)}, those since the last checkpoint"
    trainer = "t5x_harness.preemption.Trainer"
    if plan.is_preemptible:
        report.fact(PREEMPTION, f"{with_it}, as the trainer saves on SIGTERM; with trainer.Trainer {without}")
    else:
        report.fact(PREEMPTION, f"{without}; {with_it} if train.trainer_cls is @{trainer}")
    report.measure("steps_lost_to_a_preemption", 1 if plan.is_preemptible else most, "steps")


def steps_written(
    first: int, total: int, period: int, extra: Sequence[int] = (), *, first_is_there: bool = False
) -> list[int]:
    """Returns the steps at which T5X writes a checkpoint: the first, one every period, the last, and extra ones.

    Args:
      first: the step from which training starts.
      total: the step at which training ends.
      period: ``SaveCheckpointConfig.period``.
      extra: ``SaveCheckpointConfig.checkpoint_steps``.
      first_is_there: whether the checkpoint of the first step already exists; orbax does not write it again.
    """
    steps = {*range(first, total, period), total, *(step for step in extra if first < step < total)}
    if first_is_there:
        steps.discard(first)
    return sorted(steps)


def checkpoint_bytes(shapes: StateShapes, dtype: str | None) -> int:
    """Returns the bytes of a checkpoint's arrays, before compression.

    Args:
      shapes: the train state, with the optimizer's part.
      dtype: the type in which parameters are saved; None for their own type.
    """
    return sum(
        leaf.size * (jnp.dtype(dtype) if dtype and leaf.path.startswith("target/") else leaf.dtype).itemsize
        for leaf in shapes.leaves
    )


def _steps_text(steps: Sequence[int], between: Sequence[int], save: Any) -> str:
    """Describes the steps of written checkpoints, including those between periods, and how many of them are kept."""
    if not steps:
        return "none: the checkpoint of the last step is there already"
    if len(steps) <= 3:
        text = f"{len(steps)}, at step {' and '.join(map(str, steps))}"
    else:
        text = f"{len(steps)}, from step {steps[0]} each {save.period} steps to {steps[-1]}"
        text += f", and at {', '.join(map(str, between))}" if between else ""
    deleted = len(steps) - save.keep if save.keep else 0
    return f"{text}; {f'the last {save.keep} kept, {deleted} deleted' if deleted > 0 else 'all kept'}"


def describe(plan: Planned, report: StageReport) -> None:
    """Adds the facts in the order in which they are shown."""
    report.fact("slice", plan.slice.describe())
    report.fact("mesh", mesh_text(plan.mesh))
    for axis, size in plan.mesh.items():
        report.measure("mesh", size, "devices", of=axis)
    _hosts(plan, report)
    describe_batches(plan, report)
    _steps(plan, report)
    _learning_rate(plan, report)
    describe_evaluation(plan, report)
    _written(plan, report)
    _restored(plan, report)
    _state(plan, report)


def _hosts(plan: Planned, report: StageReport) -> None:
    layout = plan.layout
    report.measure("hosts", layout.hosts, "hosts")
    if layout.hosts == 1:
        return
    together = f", {layout.hosts_per_shard} hosts the same one" if layout.hosts_per_shard > 1 else ""
    report.fact("hosts", f"{layout.hosts}, which read {layout.shards} parts of the data (SeqIO shards){together}")


def _steps(plan: Planned, report: StageReport) -> None:
    steps = plan.steps
    if steps is None or not steps.is_whole:
        return
    if steps.first is None and steps.to_train is None:
        report.not_checked.append(f"how many steps are trained: {plan.start.path} does not tell the step it is at")
        return
    stretch = "wherever the checkpoint is" if steps.total is None else f"step {steps.first} to {steps.total}"
    report.fact("steps", f"{steps.to_train}, from {stretch} ({steps.key.short} = {steps.value})")
    for name, number in (("first_step", steps.first), ("last_step", steps.total), ("steps_to_train", steps.to_train)):
        if number is not None:
            report.measure(name, number, "steps")


def _learning_rate(plan: Planned, report: StageReport) -> None:
    rate = plan.learning_rate
    if rate is None or rate.problem is not None:
        return
    if rate.curve is None:
        if plan.steps is None or plan.steps.to_train != 0:
            why = "no binding tells it" if rate.schedule is None else "it is not known from which step on it is counted"
            report.not_checked.append(f"the learning rate: {why}")
        return
    points = rate.curve.points
    for step, value in points if len(points) <= _MOST_TURNS else (points[0], rate.curve.highest, points[-1]):
        report.measure("learning_rate", value, step=step)
    if rate.curve.is_flat:
        report.fact("learning rate", f"{points[0][1]:.4g} at every step")
        return
    ends = {points[0][0]: "first step", points[-1][0]: "last step"}
    shown = points if len(points) <= _MOST_TURNS else (*points[: _MOST_TURNS - 1], points[-1])
    rows: list[tuple[object, str, str]] = [(step, f"{value:.4g}", ends.get(step, "")) for step, value in shown]
    if len(shown) < len(points):
        rows.insert(-1, ("...", "", f"{len(points) - len(shown)} more turns"))
    report.fact("learning rate", columns(rows, ("step", "rate", "")))


def _state(plan: Planned, report: StageReport) -> None:
    shapes, mesh = plan.shapes, plan.mesh
    if shapes is None:
        return
    arrays = fold(shapes.parameters)
    report.fact("parameters", module_table(arrays))
    report.measure("parameters", sum(leaf.size for leaf in shapes.parameters), "elements")
    for title, table in array_tables(arrays, mesh).items():
        report.fact(title, table)
    parts = {"parameters": shapes.parameters, "optimizer": shapes.optimizer, "other": shapes.other}
    sizes = {name: sum(leaf.device_bytes(mesh) for leaf in part) for name, part in parts.items() if part}
    rows = [(name, Bytes(size), "") for name, size in sizes.items()]
    needed, usable = shapes.device_bytes(mesh), plan.slice.usable_hbm_bytes
    for name, size in (*sizes.items(), ("all", needed)):
        report.measure("state_on_each_device", size, "bytes", of=name)
    report.measure("usable_memory_of_each_device", usable, "bytes")
    rows.append(("all", Bytes(needed), f"{needed / usable:.1%} of the {Bytes(usable)} that a program may use"))
    report.fact("train state on each device" if shapes.optimizer else "parameters on each device", columns(rows))


def _restored(plan: Planned, report: StageReport) -> None:
    """Adds the checkpoint that is restored, the reason, and its comparison with the train state."""
    start, fit = plan.start, plan.fit
    if start.path is None:
        report.fact("starts from", f"scratch: {start.why}")
    elif start.problem is None:
        place = start.checkpoint or (start.key.short if start.key else start.path)
        others = f", and {start.others} more after it" if start.checkpoint and start.others else ""
        report.fact("starts from", f"{place}: {start.why}{others}")
        if fit is None:
            report.not_checked.append(f"whether {start.path} fits the model: it cannot be read here")
        elif fit.unjudged:
            report.not_checked.append(f"whether {start.checkpoint} fits the model: {fit.unjudged}")
        elif fit.fits:
            report.fact(CHECKPOINT_FITS, _fit(plan, fit))


def _fit(plan: Planned, fit: CheckpointFit) -> str:
    assert fit.tree is not None
    start, tree = plan.start, fit.tree
    parts = [f"{fit.same} arrays agree"]
    if fit.from_scratch:
        parts.append(f"{len(fit.from_scratch)} are new (fallback_to_scratch)")
    if tree.layout is not StoredLayout.ORBAX:
        parts.append(f"layout: {tree.layout}")
    stored = " and ".join(sorted({a.dtype for name, a in tree.arrays.items() if name.startswith("target/")}))
    read = getattr(start.restore, "dtype", None)
    parts.append(f"parameters are {stored}" + (f", read as {read}" if read and read != stored else ""))
    return "; ".join(parts)
