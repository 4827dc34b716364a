"""MSH06, MSH07, MSH09, MSH13, MSH15, MSH17, SEQ13 and MOD02: arrays and axes that the mesh cannot share or name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from t5x_harness.findings.rule import FILES, Found, Rule, training
from t5x_harness.slices.mesh import divisors
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey, GinConfig
    from t5x_harness.plan.arrays import Leaf
    from t5x_harness.plan.planned import Planned


_PARTITIONS = "partitioning.PjitPartitioner.num_partitions"
_VOCABULARY = "vocab"
_TWO_DIMENSIONS = "parameter_partitioning_dims=2 in the axis rules"
_LANES = 128
"""The number of columns of a TPU's matrix unit, which an array's dimension fills or wastes."""

# The names under which models bind the sizes of the standard logical axes.
_BINDINGS_OF_AXES: Mapping[str, tuple[str, ...]] = {
    "vocab": ("vocab_size", "num_embeddings"),
    "mlp": ("mlp_dim", "d_ff", "intermediate_dim"),
    "heads": ("num_heads", "num_attention_heads"),
    "joined_kv": ("num_heads", "head_dim"),
    "kv": ("head_dim",),
    "embed": ("emb_dim", "embed_dim", "d_model"),
}
_MUCH = 0.1
"""The share of the train state on each device above which it can hardly be intended."""

_LARGE = ("network.T5Config.mlp_dim = 65_536", f"{_PARTITIONS} = 4")
_AXIS_RULES = "partitioning.PjitPartitioner.logical_axis_rules"
_RULES = "('batch', 'data'), ('vocab', 'model'), ('heads', 'model'), ('joined_kv', 'model'), ('embed', None)"
_ADAFACTOR = "from t5x import adafactor"
_FACTORS = "adafactor.Adafactor.logical_factor_rules"
_OPTIMIZER = ("import rounding", "OPTIMIZER = @rounding.rounding()")


@Rule(
    "MSH06",
    "model dimension that its mesh axis does not divide",
    why="JAX raises after the restore, and names an array axis and a size, but no parameter and no binding.",
    bad=training(f"{_PARTITIONS} = 4", "network.T5Config.mlp_dim = 1022", at="network.T5Config.mlp_dim = 1022"),
    good=training(f"{_PARTITIONS} = 4", "network.T5Config.mlp_dim = 1024"),
)
def indivisible_axis(plan: Planned) -> Iterator[Found]:
    """Finds each logical axis and size that its mesh axis does not divide."""
    found: dict[tuple[str, int, int, str], list[str]] = {}
    for leaf in plan.shapes.parameters_first if plan.shapes else ():
        for index, size, parts, axes in leaf.cuts(plan.mesh):
            name = leaf.names[index] if index < len(leaf.names) else None
            if size % parts and name != _VOCABULARY:
                found.setdefault((name or f"dimension {index}", size, parts, axes), []).append(leaf.name)
    said: set[BindingKey] = set()
    for (name, size, parts, axes), paths in found.items():
        more = f" and {len(paths) - 1} more arrays" if len(paths) > 1 else ""
        if " x " in axes:
            yield _split_twice(plan, name, size, axes.split(" x "), f"{paths[0]}{more}")
            continue
        bound = _bindings_of(plan.config, name)
        key = bound[0] if bound else None
        if key in said:  # heads, and heads times head size: the same number is at fault
            continue
        said |= {key} if key else set()
        values = ", ".join(f"{k.short} = {plan.config.value(k)!r} ({plan.config.origin(k)})" for k in bound)
        yield Found(
            f"axis {name} of {paths[0]}{more} has size {size}, which {parts} devices of the mesh axis {axes} cannot "
            f"share evenly{f' with {plan.partitioned_by}' if axes == 'model' and plan.partitioned_by else ''}"
            f"{f': {values}' if values else ''}",
            key,
            f"make {key.short if key else name} divisible by {parts}, or use fewer partitions: "
            f"{' or '.join(str(number) for number in divisors(parts) if not size % number)}",
        )


def _split_twice(plan: Planned, name: str, size: int, axes: Sequence[str], where: str) -> Found:
    """Returns the finding about a rule that splits one axis over several mesh axes, which together are too many."""
    rule = (name, tuple(axes))
    devices = " x ".join(f"{plan.mesh[axis]} of {axis}" for axis in axes)
    fitting = next((axis for axis in axes if not size % plan.mesh[axis]), None)
    return Found(
        f"axis {name} of {where} has size {size}, and the rule {rule} splits it over {devices} devices, which cannot "
        "share it evenly",
        _binding_of_rule(plan.config, name),
        f"split it over one mesh axis: ({name!r}, {fitting!r})" if fitting else f"leave it whole: ({name!r}, None)",
    )


def _binding_of_rule(config: GinConfig, axis: str) -> BindingKey | None:
    """Returns the binding with the rule of a logical axis, or else that of all rules."""
    keys = [config.owner(key) for name in ("additional_rules", "logical_axis_rules") if (key := config.find(name))]
    return next((key for key in keys if repr(axis) in repr(config.value(key))), keys[-1] if keys else None)


def _bindings_of(config: GinConfig, axis: str) -> list[BindingKey]:
    """Returns the bindings that set the size of a logical axis."""
    found = [config.owner(key) for name in _BINDINGS_OF_AXES.get(axis, ()) if (key := config.find(name))]
    return found if axis == "joined_kv" else found[:1]


@Rule(
    "SEQ13",
    "vocabulary size that the model axis or a tile does not divide",
    why=(
        "The embedding has a row for each id and is cut over the model axis; T5X's models round the vocabulary up to a "
        "multiple of 128 for that. A size that the axis does not divide fails in JAX after the restore; one that is "
        "not a multiple of a TPU's 128 lanes only wastes part of each tile: a note."
    ),
    bad=training(f"{_PARTITIONS} = 2", "network.T5Config.vocab_size = 385", at="network.T5Config.vocab_size = 385"),
    good=training(f"{_PARTITIONS} = 2", "network.T5Config.vocab_size = 512"),
)
def vocabulary_rows(plan: Planned) -> Iterator[Found]:
    """Finds each vocabulary size that is not divisible by the model axis or a TPU's tile."""
    found: dict[tuple[int, int], str] = {}
    for leaf in plan.shapes.parameters if plan.shapes else ():
        parts = {index: cut for index, _, cut, _ in leaf.cuts(plan.mesh)}
        for index, (name, size) in enumerate(zip(leaf.names, leaf.shape, strict=False)):
            if name == _VOCABULARY:
                found.setdefault((size, parts.get(index, 1)), leaf.name)
    for (size, devices), path in found.items():
        bound = _bindings_of(plan.config, _VOCABULARY)
        key = bound[0] if bound else None
        step = _LANES * devices if size % devices else _LANES
        fix = f"round {key.short if key else 'it'} up to {math.ceil(size / step) * step}; no id uses the rows added"
        where = f"the vocabulary has {size} rows in {path}"
        if size % devices:
            uneven = f"{where}, which {devices} devices of the mesh cannot share evenly"
            yield Found(uneven, key, fix)
        elif size % _LANES:
            padded = f"{where}, no multiple of {_LANES}: part of each tile of the TPU is wasted"
            yield Found(padded, key, fix, severity=Severity.NOTE)


@Rule(
    "MSH09",
    "train state that does not fit a device",
    why="The compiler says RESOURCE_EXHAUSTED after ten to thirty minutes of set-up.",
    bad=training("network.T5Config.emb_dim = 16_384", "network.T5Config.mlp_dim = 131_072"),
    good=training(),
)
def state_memory(plan: Planned) -> Iterator[Found]:
    """Finds a run whose parameters and optimizer state alone need more memory than a program may use."""
    if plan.shapes is None:
        return
    state, usable = plan.shapes.device_bytes(plan.mesh), plan.slice.usable_hbm_bytes
    if state > usable:
        found = plan.config.find("model_parallel_submesh"), plan.config.find("num_partitions")
        keys = [plan.config.owner(key) for key in found if key]
        key = next((key for key in keys if plan.config.value(key) is not None), None)
        yield Found(
            f"the train state alone needs {state / 2**30:.1f} GiB on each device, and a "
            f"{plan.slice.generation.device_kind} device lets a program use {usable / 2**30:.1f} GiB",
            key,
            _enough(plan, usable),
        )


def _enough(plan: Planned, usable: int) -> str:
    """Returns a fix that would make room, with the number of partitions that it takes."""
    assert plan.shapes is not None
    if plan.mesh.keys() != {"data", "model"}:
        return f"use more partitions, {_TWO_DIMENSIONS}, or a larger slice"
    devices = math.prod(plan.mesh.values())
    needed = {n: plan.shapes.device_bytes({"data": devices // n, "model": n}) for n in divisors(devices)}
    number = next((n for n, size in needed.items() if size <= usable), None)
    if number is not None:
        on_each = f"{needed[number] / 2**30:.1f} GiB on each device"
        return f"use num_partitions = {number} ({on_each}), {_TWO_DIMENSIONS}, or a larger slice"
    left = f"{min(needed.values()) / 2**30:.1f} GiB on each"
    everything = f"num_partitions = {devices}, all devices of {plan.slice.name}, leaves {left}"
    return f"use a larger slice: {everything}; or {_TWO_DIMENSIONS}"


@Rule(
    "MSH07",
    "logical axis without a rule, whose arrays are whole on every device",
    severity=Severity.NOTE,
    why=(
        "An axis that logical_axis_rules do not name is silently left whole. That is right for small axes; for "
        "large ones every device of the model axis holds and updates the same numbers. A warning where that is more "
        "than a tenth of the train state."
    ),
    bad=training(*_LARGE, f"{_AXIS_RULES} = [{_RULES}]", at=_AXIS_RULES),
    good=training(*_LARGE, f"{_AXIS_RULES} = [{_RULES}, ('mlp', 'model')]"),
)
def axis_without_rule(plan: Planned) -> Iterator[Found]:
    """Finds each logical axis that costs memory because no rule maps it."""
    rules = getattr(plan.partitioner, "logical_axis_rules", None)
    parts = plan.mesh.get("model", 1)
    if rules is None or plan.shapes is None or parts < 2:
        return
    ruled = {name for name, _ in rules}
    whole: dict[str, list[Leaf]] = {}
    for leaf in plan.shapes.parameters_first:
        free = [name for name in leaf.names if name is not None and name not in ruled]
        if free and not any("model" in axes for _, _, _, axes in leaf.cuts(plan.mesh)):
            whole.setdefault(free[0], []).append(leaf)
    for name, leaves in whole.items():
        held = sum(leaf.device_bytes(plan.mesh) for leaf in leaves)
        spared = held - math.ceil(held / parts)
        if spared:
            more = f" and {len(leaves) - 1} more arrays" if leaves[1:] else ""
            yield Found(
                f"no rule maps the logical axis {name} of {leaves[0].name}{more}: they are whole on each of the "
                f"{parts} devices of the model axis, {held / 2**20:.4g} MiB where {(held - spared) / 2**20:.4g} "
                "would do",
                plan.config.find("logical_axis_rules"),
                f"add ('{name}', 'model') to the rules, or ('{name}', None) if it is meant so",
                severity=Severity.WARNING if spared > _MUCH * plan.shapes.device_bytes(plan.mesh) else None,
            )


MSH13 = Rule(
    "MSH13",
    "parameter or axis without an Adafactor factorisation rule",
    name="NoFactorRule",
    why=(
        "Adafactor keeps rows and columns of second moments, and its logical_factor_rules say which axis is which. For "
        "an axis that they lack T5X raises a bare `KeyError` with the axis' name, while it makes the train state."
    ),
    bad=training(_ADAFACTOR, f"{_FACTORS} = {{'embed': 'row', 'mlp': 'column'}}", at=_FACTORS),
    good=training(_ADAFACTOR, f"{_FACTORS} = @adafactor.standard_logical_factor_rules()"),
)


_RENAMED = """\
from t5x import models
from t5x import utils


class Renamed(models.EncoderDecoderModel):
    def get_initial_variables(self, *args, **kwargs):
        variables = super().get_initial_variables(*args, **kwargs)
        return utils.override_params_axes_names(variables, [('token_embedder/embedding', ({names},))])
"""
_MODEL = (
    "import renamed",
    "MODEL = @renamed.Renamed()",
    "renamed.Renamed.module = @network.Transformer()",
    "renamed.Renamed.input_vocabulary = %VOCABULARY",
    "renamed.Renamed.output_vocabulary = %VOCABULARY",
    "renamed.Renamed.optimizer_def = %OPTIMIZER",
)


MSH15 = Rule(
    "MSH15",
    "parameters whose axes have no names, or not as many as they have axes",
    name="AxisNames",
    why=(
        "T5X shards parameters by the names of their axes, which the model gives in its collection params_axes or the "
        "config overrides. It raises while it makes the train state, after it built the datasets."
    ),
    bad=training(*_MODEL, files={**FILES, "renamed.py": _RENAMED.format(names="'vocab'")}),
    good=training(*_MODEL, files={**FILES, "renamed.py": _RENAMED.format(names="'vocab', 'embed'")}),
)


_ROUNDING = """\
import optax
from typing import NamedTuple

from t5x import optimizers


class RoundingState(NamedTuple):
    steps: int


def rounding():
    own = optax.GradientTransformation(lambda _: {}, lambda updates, state, _=None: (updates, state))
    return optimizers.OptaxWrapper(optax.chain(own, optax.sgd(0.1)))
"""


MSH17 = Rule(
    "MSH17",
    "optimizer whose state T5X does not know how to shard",
    name="UnknownOptimizer",
    why=(
        "The state of an optimizer is sharded as its parameters are. An optimizer says how in its method "
        "derive_logical_axes; of optax, T5X knows the states that come with it, by their types. For all others it "
        "raises while it makes the train state, after it built the datasets."
    ),
    bad=training(*_OPTIMIZER, files={**FILES, "rounding.py": _ROUNDING.format("RoundingState(0)")}, at="OPTIMIZER"),
    good=training(*_OPTIMIZER, files={**FILES, "rounding.py": _ROUNDING.format("optax.EmptyState()")}),
)


MOD02 = Rule(
    "MOD02",
    "model's type that JAX does not know",
    name="UnknownType",
    why="The model raises `data type … not understood` when T5X makes the train state, after it built the datasets.",
    bad=training("network.T5Config.dtype = '<f5'", at="network.T5Config.dtype"),
    good=training("network.T5Config.dtype = '<f4'"),
)
