"""MSH07, MSH13, MSH15, MSH17 and MOD02: axes without rule, factorisation or name; unknown optimizers and types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.plan.leaf import Leaf
    from t5x_harness.plan.planned import Planned

_MUCH = 0.1
"""The share of the train state on each device from which on it can hardly be meant."""

_LARGE = ("network.T5Config.mlp_dim = 65_536", "partitioning.PjitPartitioner.num_partitions = 4")
_RULES = "('batch', 'data'), ('vocab', 'model'), ('heads', 'model'), ('joined_kv', 'model'), ('embed', None)"


MSH07 = Mistake(
    "MSH07",
    "logical axis without a rule, whose arrays are whole on every device",
    severity=Severity.NOTE,
    why=(
        "An axis that logical_axis_rules do not name is silently left whole. That is right for small axes; for "
        "large ones every device of the model axis holds and updates the same numbers. A warning where that is more "
        "than a tenth of the train state."
    ),
    bad=training(
        *_LARGE,
        f"partitioning.PjitPartitioner.logical_axis_rules = [{_RULES}]",
        at="partitioning.PjitPartitioner.logical_axis_rules",
    ),
    good=training(*_LARGE, f"partitioning.PjitPartitioner.logical_axis_rules = [{_RULES}, ('mlp', 'model')]"),
)


@finds(MSH07)
def axis_without_rule(plan: Planned) -> Iterator[Found]:
    """Finds each logical axis that no rule maps and that costs memory."""
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


MSH13 = Mistake(
    "MSH13",
    "parameter or axis without an Adafactor factorisation rule",
    why=(
        "Adafactor keeps rows and columns of second moments, and its logical_factor_rules say which axis is which. For "
        "an axis that they lack T5X raises a bare `KeyError` with the axis' name, while it makes the train state."
    ),
    bad=training(
        "from t5x import adafactor",
        "adafactor.Adafactor.logical_factor_rules = {'embed': 'row', 'mlp': 'column'}",
        at="adafactor.Adafactor.logical_factor_rules",
    ),
    good=training(
        "from t5x import adafactor",
        "adafactor.Adafactor.logical_factor_rules = @adafactor.standard_logical_factor_rules()",
    ),
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


MSH15 = Mistake(
    "MSH15",
    "parameters whose axes have no names, or not as many as they have axes",
    why=(
        "T5X shards parameters by the names of their axes, which the model gives in its collection params_axes or the "
        "config overrides. It raises while it makes the train state, after it built the datasets."
    ),
    bad=training(*_MODEL, files={**examples.FILES, "renamed.py": _RENAMED.format(names="'vocab'")}),
    good=training(*_MODEL, files={**examples.FILES, "renamed.py": _RENAMED.format(names="'vocab', 'embed'")}),
)


_ROUNDING = """\
import optax
from typing import NamedTuple

from t5x import optimizers


class {name}(NamedTuple):
    steps: int


def rounding():
    own = optax.GradientTransformation(lambda _: {made}, lambda updates, state, _=None: (updates, state))
    return optimizers.OptaxWrapper(optax.chain(own, optax.sgd(0.1)))
"""
_OPTIMIZER = ("import rounding", "OPTIMIZER = @rounding.rounding()")


MSH17 = Mistake(
    "MSH17",
    "optimizer whose state T5X does not know how to shard",
    why=(
        "The state of an optimizer is sharded as its parameters are. An optimizer says how in its method "
        "derive_logical_axes; of optax, T5X knows the states that come with it, by their types. For all others it "
        "raises while it makes the train state, after it built the datasets."
    ),
    bad=training(
        *_OPTIMIZER,
        files={**examples.FILES, "rounding.py": _ROUNDING.format(name="RoundingState", made="RoundingState(0)")},
        at="OPTIMIZER",
    ),
    good=training(
        *_OPTIMIZER,
        files={**examples.FILES, "rounding.py": _ROUNDING.format(name="RoundingState", made="optax.EmptyState()")},
    ),
)


MOD02 = Mistake(
    "MOD02",
    "model's type that JAX does not know",
    why="The model raises `data type … not understood` when T5X makes the train state, after it built the datasets.",
    bad=training("network.T5Config.dtype = 'mixed'", at="network.T5Config.dtype"),
    good=training("network.T5Config.dtype = 'bfloat16'"),
)


FOUND_BY_STAGE = {"NoFactorRule": MSH13, "AxisNames": MSH15, "UnknownOptimizer": MSH17, "UnknownType": MOD02}
