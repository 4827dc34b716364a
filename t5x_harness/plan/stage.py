"""The plan stage: the full-size run in shapes only, and what T5X would refuse or do without a word."""

from __future__ import annotations

from typing import Any

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import GinConfig
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.plan.checkpoint_fit import compare
from t5x_harness.plan.checkpoint_source import find_start
from t5x_harness.plan.data_layout import data_layout
from t5x_harness.plan.description import describe
from t5x_harness.plan.learning_rate import learning_rate
from t5x_harness.plan.planned import Planned
from t5x_harness.plan.refusals import Refusal, missing_partitioner, refused_mesh, refused_state, too_deep
from t5x_harness.plan.rules import RULES
from t5x_harness.plan.state_shapes import StateShapes, model_inputs, state_shapes
from t5x_harness.plan.steps import planned_steps
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.explanation import log_traceback
from t5x_harness.resolve.resolved import Resolved, lengths_of
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Mode


def plan(run: Resolved, slice_: Slice, report: StageReport) -> Planned | None:
    """Plans the run at the sizes it names; no array is made.

    Args:
      run: the resolved config.
      slice_: the slice whose mesh is in place.
      report: gets facts, findings and what could not be judged.

    Returns:
      The plan, or None if there is no mesh.

    Raises:
      Exception: the model or its learning rate cannot be traced.
    """
    partitioner = _partitioner(run.config, report)
    if partitioner is None:
        return None
    start = find_start(run.config)
    steps = planned_steps(run.config, start)
    shapes = _shapes(run, slice_, partitioner, report)
    cast = getattr(start.restore, "dtype", None)
    if shapes is not None and start.path and cast:
        shapes = shapes.with_parameters_as(cast)
    planned = Planned(
        run,
        slice_,
        partitioner,
        data_layout(partitioner, slice_),
        start,
        steps,
        learning_rate(run.config, run.model, steps),
        shapes,
        compare(start, shapes),
    )
    if planned.shapes is not None:
        report.exercised = len(planned.shapes.leaves)
    report.attempt(describe, planned, report)
    for rule in RULES:
        report.attempt(lambda rule=rule: report.add(rule.findings(planned, run.config.place)))
    report.end_attempts()
    report.not_checked.append(TEMPORARIES_UNKNOWN)
    rate = planned.learning_rate
    if rate is not None and rate.problem is not None and rate.unknown_factor is None and not report.failed:
        raise rate.problem  # T5X meets it when it traces the train step
    return planned


def _partitioner(config: GinConfig, report: StageReport) -> Any:
    try:
        partitioner = config.build("partitioner")
        if partitioner is not None and not isinstance(partitioner, type) and hasattr(partitioner, "mesh"):
            return partitioner
        refusal = missing_partitioner(config)
    except Exception as error:
        refused = refused_mesh(error, config)
        if refused is None:
            raise
        refusal = refused
    _report(refusal, config, report)
    return None


def _shapes(run: Resolved, slice_: Slice, partitioner: Any, report: StageReport) -> StateShapes | None:
    refusal = too_deep(run.config, slice_)
    if refusal is None:
        sized = (r for r in run.roles if isinstance(r.dataset.batch_size, int) and r.dataset.batch_size > 0)
        role = next(sized, None)
        if role is None or not getattr(run.model, "FEATURE_CONVERTER_CLS", None):
            report.not_checked.append("the train state: no dataset gives the model's input shapes")
            return None
        try:
            return shapes_for(run, role, partitioner)
        except Exception as error:
            refusal = refused_state(error, run.config)
            if refusal is None:
                raise
            log_traceback(error)
    _report(refusal, run.config, report)
    return None


def _report(refusal: Refusal, config: GinConfig, report: StageReport) -> None:
    report.find(
        refusal.code,
        refusal.message,
        location=config.location(refusal.key),
        fix=refusal.fix,
        binding=refusal.key.short if refusal.key else None,
    )


def shapes_for(run: Resolved, role: DataRole, partitioner: Any) -> StateShapes:
    """Returns the train state's shapes for the data of one role."""
    lengths = lengths_of(role, run.samples, run.tasks[role.parameter])
    training = run.config.mode is Mode.TRAIN
    inputs = model_inputs(run.model, lengths, role.dataset.batch_size, role.dataset.pack if training else False)
    own = run.config.build("train_state_initializer_cls")
    return state_shapes(run.model, partitioner, inputs, with_optimizer=training, initializer_cls=own)
