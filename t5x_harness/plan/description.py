"""What the plan reports about a run: slice, mesh, batches, steps, learning rate, checkpoints, arrays, memory."""

from __future__ import annotations

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.tables import Bytes, columns
from t5x_harness.plan.arrays import array_tables, fold, module_table
from t5x_harness.plan.batches import describe_batches, describe_evaluation
from t5x_harness.plan.checkpoint_fit import CheckpointFit
from t5x_harness.plan.checkpoints_written import describe_written
from t5x_harness.plan.golden import CHECKPOINT_FITS
from t5x_harness.plan.planned import Planned
from t5x_harness.plan.stored_tree import StoredLayout
from t5x_harness.slices.mesh import mesh_text

_MOST_TURNS = 8
"""How many turns of a learning rate are shown; a cyclic rate has any number."""


def describe(plan: Planned, report: StageReport) -> None:
    """Adds the facts, in the order to show them."""
    report.fact("slice", plan.slice.describe())
    report.fact("mesh", mesh_text(plan.mesh))
    for axis, size in plan.mesh.items():
        report.measure("mesh", size, "devices", of=axis)
    _hosts(plan, report)
    describe_batches(plan, report)
    _steps(plan, report)
    _learning_rate(plan, report)
    describe_evaluation(plan, report)
    describe_written(plan, report)
    describe_restored(plan, report)
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
    way = (
        f", from step {steps.first} to {steps.total}"
        if steps.total is not None
        else ", from wherever the checkpoint is"
    )
    report.fact("steps", f"{steps.to_train}{way} ({steps.key.short} = {steps.value})")
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
    report.measure("parameters", shapes.num_parameters, "elements")
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


def describe_restored(plan: Planned, report: StageReport) -> None:
    """Adds which checkpoint is restored and why, and how it compares with the train state."""
    start, fit = plan.start, plan.fit
    if start.problem is None or start.path is None:
        report.fact("starts from", _origin(plan))
    if start.path is None or start.problem is not None:
        return
    if fit is None:
        report.not_checked.append(f"whether {start.path} fits the model: it cannot be read here")
    elif fit.unjudged:
        report.not_checked.append(f"whether {start.checkpoint} fits the model: {fit.unjudged}")
    elif fit.fits:
        report.fact(CHECKPOINT_FITS, _fit(plan, fit))


def _origin(plan: Planned) -> str:
    start = plan.start
    if start.path is None:
        return f"scratch: {start.why}"
    if start.checkpoint is None:
        return f"{start.key.short if start.key else start.path}: {start.why}"
    others = f", and {start.others} more after it" if start.others else ""
    return f"{start.checkpoint}: {start.why}{others}"


def _fit(plan: Planned, fit: CheckpointFit) -> str:
    assert fit.tree is not None
    start, tree = plan.start, fit.tree
    parts = [f"{fit.same} arrays agree"]
    if fit.from_scratch:
        parts.append(f"{len(fit.from_scratch)} are new (fallback_to_scratch)")
    if tree.layout is not StoredLayout.ORBAX:
        parts.append(f"layout: {tree.layout}")
    stored = " and ".join(tree.parameter_types)
    read = getattr(start.restore, "dtype", None)
    parts.append(f"parameters are {stored}" + (f", read as {read}" if read and read != stored else ""))
    return "; ".join(parts)
