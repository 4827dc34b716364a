"""Why a run has no mesh or no train state: what T5X refuses before there are any shapes to judge."""

from __future__ import annotations

import dataclasses
import re
import traceback
from pathlib import PurePath

from t5x_harness.findings.tables import Bytes
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.resolve.model_sizes import HEAD_DIM, HEADS, LAYERS, MLP, WIDTH, bound_integers
from t5x_harness.slices.mesh import HostsNotTiled, MeshRefused
from t5x_harness.slices.slice import Slice
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
