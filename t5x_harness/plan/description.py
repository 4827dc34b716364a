"""What the plan says of a run: slice, mesh, batches, steps, checkpoints, memory."""

from __future__ import annotations

import math

from t5x_harness.plan.planned import Planned
from t5x_harness.plan.steps import planned_steps
from t5x_harness.resolve.stage_report import StageReport
from t5x_harness.spec import Mode

__all__ = ["describe"]


def describe(plan: Planned, report: StageReport) -> None:
    """Adds the facts, in the order to show them."""
    report.fact("slice", plan.slice.describe())
    report.fact("mesh", " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items()))
    _batches(plan, report)
    _steps(plan, report)
    _state(plan, report)
    _start(plan, report)


def _batches(plan: Planned, report: StageReport) -> None:
    data, config = plan.mesh["data"], plan.config
    for role in plan.run.roles:
        batch = role.dataset.batch_size
        if isinstance(batch, int) and batch % data == 0:
            report.fact(f"{role.name} batch", f"{batch}, {batch // data} for each data position")
    key = config.find("num_microbatches")
    parts = config.value(config.owner(key)) if key and config.mode is Mode.TRAIN else None
    batch = next((r.dataset.batch_size for r in plan.run.roles if r.name == "train"), None)
    if isinstance(parts, int) and parts > 1 and isinstance(batch, int) and batch % parts == 0:
        report.fact("microbatches", f"{parts} of {batch // parts} examples")


def _steps(plan: Planned, report: StageReport) -> None:
    steps, config = planned_steps(plan), plan.config
    if steps is None or steps.total is None:
        return
    origin = f"from step {steps.first} of {plan.start.path}" if plan.start.path else "from scratch"
    report.fact("steps", f"{steps.to_train}, {origin} to {steps.total}")
    period_key = config.find("period", "SaveCheckpointConfig")
    period = config.value(config.owner(period_key)) if period_key else None
    keep_key = config.find("keep", "SaveCheckpointConfig")
    keep = config.value(config.owner(keep_key)) if keep_key else None
    if isinstance(period, int) and period and steps.to_train:
        written = 1 + math.ceil(steps.to_train / period)
        report.fact("checkpoints", f"{written}, one each {period} steps, {f'the last {keep}' if keep else 'all'} kept")


def _state(plan: Planned, report: StageReport) -> None:
    shapes = plan.shapes
    if shapes is None:
        return
    report.fact("parameters", f"{shapes.num_parameters:,}")
    with_optimizer = len(shapes.leaves) > len(shapes.parameters) + 1
    report.fact(
        "train state on each device" if with_optimizer else "parameters on each device",
        f"{shapes.device_bytes(plan.mesh) / 2**30:.3g} GiB of {plan.slice.usable_hbm_bytes / 2**30:.4g} GiB",
    )


def _start(plan: Planned, report: StageReport) -> None:
    start, fit = plan.start, plan.fit
    if not start.path or start.problem:
        return
    if fit is None:
        report.not_checked.append(f"whether {start.path} fits the model: it cannot be read here")
    elif not fit.different and (start.transforms or not fit.missing):
        report.fact("checkpoint", f"{start.path} fits: {fit.same} arrays of the model")
