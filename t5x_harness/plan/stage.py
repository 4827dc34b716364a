"""The plan stage: the full-size run in shapes only, and what T5X would refuse or do without a word."""

from __future__ import annotations

import dataclasses
import re
import traceback
from pathlib import PurePath
from typing import Any

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.text import Bytes
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.plan.checkpoint_fit import compare
from t5x_harness.plan.checkpoint_source import find_start
from t5x_harness.plan.description import describe
from t5x_harness.plan.planned import Planned
from t5x_harness.plan.rules import RULES
from t5x_harness.plan.state_shapes import StateShapes, data_layout, model_inputs, state_shapes
from t5x_harness.plan.steps import learning_rate, planned_steps
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.explanation import log_traceback
from t5x_harness.resolve.resolved import HEAD_DIM, HEADS, LAYERS, MLP, WIDTH, Resolved, bound_integers, lengths_of
from t5x_harness.slices.mesh import HostsNotTiled, MeshRefused
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Mode
from t5x_harness.system.misspelling import closest


@dataclasses.dataclass(frozen=True)
class Refusal:
    """What is wrong, the smallest fix, and the binding at fault, if it is known."""

    code: str
    message: str
    fix: str
    key: BindingKey | None = None


_TYPES = ("bfloat16", "float32", "float16", "float64", "int32")
"""The types that a model may compute in."""
_FACTORING = frozenset({"adafactor.py", "factoring.py"})
_NAMING = frozenset({"train_state.py", "axis_names.py"})
_NO_METHOD = re.compile(r"(?:Optimizer ')?(\w+)'? .*`?derive_logical_axes`?")
_NO_STATE = re.compile(r"(?:The optax state|unregistered optax state type) ([\w.]+)")
_OVERRIDES = "override_params_axes_names"

_TRACED = 1000
"""Up to so many layers, the model itself is traced, which says more."""
_BYTES = 4
"""The size of a parameter; T5X keeps the master copy in float32."""


def refused_mesh(error: BaseException, config: GinConfig) -> Refusal | None:
    """Returns why there is no mesh, from what building the partitioner raised; None for another kind of exception."""
    refused: BaseException | None = error
    while refused is not None and not isinstance(refused, MeshRefused):
        refused = refused.__cause__ or refused.__context__
    if refused is None:
        return None
    submesh, partitions = map(config.find, ("model_parallel_submesh", "num_partitions"))
    key = submesh if config.value(config.owner(submesh)) is not None else partitions or submesh
    why, _, fix = re.split(r"\n\s*In call to", str(refused))[0].partition("; ")
    return Refusal(
        "MSH04" if isinstance(refused, HostsNotTiled) else "MSH03",
        why,
        fix or "choose a number of partitions or a submesh that fits the slice",
        config.owner(key),
    )


def missing_partitioner(config: GinConfig) -> Refusal:
    """Returns why what the config binds is not a partitioner."""
    key = BindingKey("", config.entry, "partitioner")
    if not config.is_bound(key):
        return Refusal("GIN03", "no partitioner is bound", f"bind {key.short}")
    value = config.value(key)
    message = f"the partitioner is {value!r}, which is not a partitioner but what makes one"
    return Refusal("GIN20", message, f"write {value!r}()", key)


def too_deep(config: GinConfig, slice_: Slice) -> Refusal | None:
    """Returns why a model is not traced: it has so many layers that they cannot fit the devices of a slice.

    The bound counts the least that a layer can hold: a vector of the model's width, and the matrices of attention and
    MLP whose sizes are bound.  A huge number of layers cannot even be traced.
    """
    width, mlp, heads, head_dim = (_least(config, names) for names in (WIDTH, MLP, HEADS, HEAD_DIM))
    of_layer = max(1, width + 2 * width * mlp + 4 * width * heads * head_dim)
    room = slice_.num_devices * slice_.usable_hbm_bytes
    for key, layers in bound_integers(config, LAYERS):
        needed = layers * of_layer * _BYTES
        if layers > _TRACED and needed > room:
            message = (
                f"{key.short} = {layers:,}: {layers:,} layers of at least {of_layer:,} parameters need "
                f"{Bytes(needed)}, and the {slice_.num_devices} devices of {slice_.name} have {Bytes(room)} together"
            )
            return Refusal("MSH09", message, f"correct {key.short}", key)
    return None


def _least(config: GinConfig, names: frozenset[str]) -> int:
    return max(0, min((size for _, size in bound_integers(config, names)), default=0))


def refused_state(error: BaseException, config: GinConfig) -> Refusal | None:
    """Returns why there is no train state, from what tracing the model's initialization raised.

    It is recognized by where in T5X it is raised, because some texts are only a name.

    Returns:
      None if the exception is of another kind.
    """

    def refusal(code: str, message: str, parameters: tuple[str, ...], fix: str) -> Refusal:
        return Refusal(code, message, fix, config.owner(next(filter(None, map(config.find, parameters)), None)))

    if (unknown := re.search(r"data type '([^']*)' not understood", str(error))) is not None:
        close = closest(unknown[1], _TYPES)
        return Refusal(
            "MOD02",
            f"{unknown[1]!r} is not a type that JAX knows",
            f"write {close!r}" if close else f"use one of {', '.join(map(repr, _TYPES))}",
            next((key for key, value in config.items() if value == unknown[1]), None),
        )
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "t5x" in PurePath(frame.filename).parts]
    if not frames:
        return None
    file, function = PurePath(frames[-1].filename).name, frames[-1].name
    said = str(error).partition("\n")[0].strip("\"'")
    if file in _FACTORING and isinstance(error, KeyError | ValueError):
        missing = isinstance(error, KeyError) and said.isidentifier()
        what = f"its logical_factor_rules lack the axis {said}" if missing else said
        return refusal(
            "MSH13",
            f"Adafactor cannot factor the parameters: {what}",
            ("logical_factor_rules", "factor_map"),
            f"add {said} to logical_factor_rules" if missing else "give each axis a rule: row, column, batch or none",
        )
    if not isinstance(error, ValueError):
        return None
    ready = "use one of t5x.adafactor and t5x.optimizers"
    if state := _NO_STATE.search(said):
        return refusal(
            "MSH17",
            f"T5X does not know how to shard the state {state[1]} of an optax optimizer",
            ("optimizer_def", "optax_optimizer"),
            f"{ready}, or optax transformations of its own, whose states T5X knows",
        )
    if method := _NO_METHOD.match(said):
        return refusal(
            "MSH17",
            f"T5X cannot shard the state of the optimizer {method[1]}: it has no method derive_logical_axes",
            ("optimizer_def",),
            f"{ready}, or give {method[1]} a derive_logical_axes(optimizer_state, param_logical_axes)",
        )
    if file in _NAMING or function == _OVERRIDES:
        return refusal(
            "MSH15",
            f"the model's axis names do not fit its parameters: {said}",
            ("params_axes_names_override",),
            "give each parameter one name for each of its axes",
        )
    return None


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
