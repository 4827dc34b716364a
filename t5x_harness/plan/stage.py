"""The plan stage: traces the full-size run in shapes only, and finds what T5X would refuse or silently do wrong."""

import re
import traceback
from pathlib import PurePath
from typing import Any

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.text import Bytes
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.plan.called_functions import refused_calls
from t5x_harness.plan.checkpoint_fit import compare
from t5x_harness.plan.checkpoint_source import find_start
from t5x_harness.plan.description import describe
from t5x_harness.plan.planned import Planned
from t5x_harness.plan.rules import RULES
from t5x_harness.plan.state_shapes import StateShapes, data_layout, model_inputs, state_shapes
from t5x_harness.plan.steps import learning_rate, planned_steps
from t5x_harness.resolve.explanation import log_traceback
from t5x_harness.resolve.resolved import HEAD_DIM, HEADS, LAYERS, MLP, WIDTH, Resolved, bound_integers
from t5x_harness.slices.mesh import HostsNotTiled, MeshRefused
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Finding, Mode, Severity, Stage
from t5x_harness.system.misspelling import closest

_TYPES = ("bfloat16", "float32", "float16", "float64", "int32")
"""The types in which a model may compute."""
_FACTORING = frozenset({"adafactor.py", "factoring.py"})
_NAMING = frozenset({"train_state.py", "axis_names.py"})
_NO_METHOD = re.compile(r"(?:Optimizer ')?(\w+)'? .*`?derive_logical_axes`?")
_NO_STATE = re.compile(r"(?:The optax state|unregistered optax state type) ([\w.]+)")
_OVERRIDES = "override_params_axes_names"

_TRACED = 1000
"""The largest number of layers for which the model itself is traced, which tells more."""
_BYTES = 4
"""The bytes of a parameter; T5X keeps the master copy in float32."""


def _refused_mesh(error: BaseException, config: GinConfig) -> Finding | None:
    """Returns why there is no mesh, given the exception from building the partitioner; None for other exceptions."""
    refused: BaseException | None = error
    while refused is not None and not isinstance(refused, MeshRefused):
        refused = refused.__cause__ or refused.__context__
    if refused is None:
        return None
    submesh, partitions = map(config.find, ("model_parallel_submesh", "num_partitions"))
    key = submesh if config.value(config.owner(submesh)) is not None else partitions or submesh
    why, _, fix = re.split(r"\n\s*In call to", str(refused))[0].partition("; ")
    code = "MSH04" if isinstance(refused, HostsNotTiled) else "MSH03"
    fix = fix or "choose a number of partitions or a submesh that fits the slice"
    return _refused(config, code, why, fix, config.owner(key))


def _refused(config: GinConfig, code: str, message: str, fix: str, key: BindingKey | None = None) -> Finding:
    """Returns a finding at the binding at fault, if it is known."""
    at, name = config.place(key)
    return Finding(code, Severity.ERROR, Stage.PLAN, message, at, fix, name)


def _missing_partitioner(config: GinConfig) -> Finding:
    """Returns why the config's value is not a partitioner."""
    key = BindingKey("", config.entry, "partitioner")
    if not config.is_bound(key):
        return _refused(config, "GIN03", "no partitioner is bound", f"bind {key.short}")
    value = config.value(key)
    message = f"the partitioner is {value!r}, which is not a partitioner but what makes one"
    return _refused(config, "GIN20", message, f"write {value!r}()", key)


def _too_deep(config: GinConfig, slice_: Slice) -> Finding | None:
    """Returns why a model is not traced: it has so many layers that they cannot fit the devices of a slice.

    The bound counts the minimum that a layer holds: a vector of the model's width, and the matrices of attention and
    MLP whose sizes are bound. A huge number of layers cannot even be traced.
    """
    sizes = ([size for _, size in bound_integers(config, names)] for names in (WIDTH, MLP, HEADS, HEAD_DIM))
    width, mlp, heads, head_dim = (max(0, min(bound, default=0)) for bound in sizes)
    of_layer = max(1, width + 2 * width * mlp + 4 * width * heads * head_dim)
    room = slice_.num_devices * slice_.usable_hbm_bytes
    for key, layers in bound_integers(config, LAYERS):
        needed = layers * of_layer * _BYTES
        if layers > _TRACED and needed > room:
            message = (
                f"{key.short} = {layers:,}: {layers:,} layers of at least {of_layer:,} parameters need "
                f"{Bytes(needed)}, and the {slice_.num_devices} devices of {slice_.name} have {Bytes(room)} together"
            )
            return _refused(config, "MSH09", message, f"correct {key.short}", key)
    return None


def _refused_state(error: BaseException, config: GinConfig) -> Finding | None:
    """Returns why there is no train state, given the exception from tracing the model's initialization.

    The exception is recognized by the place in T5X that raises it, because some texts are only a name.

    Returns:
      The finding; None if the exception is of another kind.
    """

    def bound(*parameters: str) -> BindingKey | None:
        return config.owner(next(filter(None, map(config.find, parameters)), None))

    if (unknown := re.search(r"data type '([^']*)' not understood", str(error))) is not None:
        close = closest(unknown[1], _TYPES)
        fix = f"write {close!r}" if close else f"use one of {', '.join(map(repr, _TYPES))}"
        key = next((key for key, value in config.items() if value == unknown[1]), None)
        return _refused(config, "MOD02", f"{unknown[1]!r} is not a type that JAX knows", fix, key)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "t5x" in PurePath(frame.filename).parts]
    if not frames:
        return None
    file, function = PurePath(frames[-1].filename).name, frames[-1].name
    said = str(error).partition("\n")[0].strip("\"'")
    if file in _FACTORING and isinstance(error, KeyError | ValueError):
        missing = isinstance(error, KeyError) and said.isidentifier()
        what = f"its logical_factor_rules lack the axis {said}" if missing else said
        message, key = f"Adafactor cannot factor the parameters: {what}", bound("logical_factor_rules", "factor_map")
        fix = f"add {said} to logical_factor_rules" if missing else "give each axis a rule: row, column, batch or none"
        return _refused(config, "MSH13", message, fix, key)
    if not isinstance(error, ValueError):
        return None
    ready = "use one of t5x.adafactor and t5x.optimizers"
    if state := _NO_STATE.search(said):
        message = f"T5X does not know how to shard the state {state[1]} of an optax optimizer"
        fix = f"{ready}, or optax transformations of its own, whose states T5X knows"
        return _refused(config, "MSH17", message, fix, bound("optimizer_def", "optax_optimizer"))
    if method := _NO_METHOD.match(said):
        message = f"T5X cannot shard the state of the optimizer {method[1]}: it has no method derive_logical_axes"
        fix = f"{ready}, or give {method[1]} a derive_logical_axes(optimizer_state, param_logical_axes)"
        return _refused(config, "MSH17", message, fix, bound("optimizer_def"))
    if file in _NAMING or function == _OVERRIDES:
        message = f"the model's axis names do not fit its parameters: {said}"
        fix = "give each parameter one name for each of its axes"
        return _refused(config, "MSH15", message, fix, bound("params_axes_names_override"))
    return None


def plan(run: Resolved, slice_: Slice, report: StageReport) -> Planned | None:
    """Plans the run at the config's own sizes; no array is made.

    Args:
      run: the resolved config.
      slice_: the slice whose mesh is in place.
      report: receives facts, findings and notes on what could not be judged.

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
    layout, rate = data_layout(partitioner, slice_), learning_rate(run.config, run.model, steps)
    planned = Planned(run, slice_, partitioner, layout, start, steps, rate, shapes, compare(start, shapes))
    if shapes is not None:
        report.exercised = len(shapes.leaves)
    report.attempt(describe, planned, report)
    report.apply(RULES, planned, run.config.place)
    report.end_attempts()
    report.not_checked.append(TEMPORARIES_UNKNOWN)
    if rate is not None and rate.problem is not None and rate.unknown_factor is None and not report.failed:
        raise rate.problem  # T5X raises it when it traces the train step
    report.add(refused_calls(run.config))
    return planned


def _partitioner(config: GinConfig, report: StageReport) -> Any:
    try:
        partitioner = config.build("partitioner")
        if partitioner is not None and not isinstance(partitioner, type) and hasattr(partitioner, "mesh"):
            return partitioner
        report.add([_missing_partitioner(config)])
    except Exception as error:
        refusal = _refused_mesh(error, config)
        if refusal is None:
            raise
        report.add([refusal])
    return None


def _shapes(run: Resolved, slice_: Slice, partitioner: Any, report: StageReport) -> StateShapes | None:
    refusal = _too_deep(run.config, slice_)
    if refusal is None:
        sized = (r for r in run.roles if isinstance(r.dataset.batch_size, int) and r.dataset.batch_size > 0)
        role = next(sized, None)
        if role is None or not getattr(run.model, "FEATURE_CONVERTER_CLS", None):
            report.not_checked.append("the train state: no dataset gives the model's input shapes")
            return None
        try:
            lengths = run.lengths_of(role, run.tasks[role.parameter])
            training = run.config.mode is Mode.TRAIN
            inputs = model_inputs(run.model, lengths, role.dataset.batch_size, training and role.dataset.pack)
            own = run.config.build("train_state_initializer_cls")
            return state_shapes(run.model, partitioner, inputs, with_optimizer=training, initializer_cls=own)
        except Exception as error:
            refusal = _refused_state(error, run.config)
            if refusal is None:
                raise
            log_traceback(error)
    report.add([refusal])
    return None
