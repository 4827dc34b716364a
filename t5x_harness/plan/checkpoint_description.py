"""What the plan says of the checkpoint that a run starts from: which one, why, and whether it fits the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t5x_harness.plan.checkpoint_fit import CheckpointFit
from t5x_harness.plan.golden import CHECKPOINT_FITS
from t5x_harness.plan.stored_tree import Layout

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned
    from t5x_harness.resolve.stage_report import StageReport


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
    if tree.layout is not Layout.ORBAX:
        parts.append(f"layout: {tree.layout}")
    stored = " and ".join(tree.parameter_types)
    read = getattr(start.restore, "dtype", None)
    parts.append(f"parameters are {stored}" + (f", read as {read}" if read and read != stored else ""))
    return "; ".join(parts)
