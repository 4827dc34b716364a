"""Logical axis names and T5X's rules that map them to mesh axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from absl import logging
from t5x._shown_as import shown_as

LogicalAxisRules: TypeAlias = Sequence[tuple[str, str | tuple[str, ...] | None]]

_REPLICATED = ("relpos_buckets", "abspos_buckets", "length", "layers", "stack", "mlp_activations")


@shown_as("t5x.partitioning")
class AxisNames(tuple[str, ...]):
    """The logical axis names of one array; a leaf of a tree, unlike a plain tuple."""

    __slots__ = ()

    def __new__(cls, *names: str) -> AxisNames:
        """Makes the names from separate arguments."""
        return super().__new__(cls, names)

    def __repr__(self) -> str:
        return f"AxisNames{tuple(self)!r}"


@shown_as("t5x.partitioning")
def standard_logical_axis_rules(
    activation_partitioning_dims: int = 1,
    parameter_partitioning_dims: int = 1,
    additional_rules: LogicalAxisRules | None = None,
) -> LogicalAxisRules:
    """Returns the rules for T5X's networks, the first that fits counts.

    Args:
        activation_partitioning_dims: 2 divides activations along ``embed`` too, over ``model``.
        parameter_partitioning_dims: 2 divides parameters along ``embed`` too, over ``data``.
        additional_rules: rules to put after these.

    Raises:
        ValueError: a number of dimensions other than 1 or 2.
    """
    dims = (activation_partitioning_dims, parameter_partitioning_dims)
    if not set(dims) <= {1, 2}:
        raise ValueError(
            f"activation_partitioning_dims={dims[0]} and parameter_partitioning_dims={dims[1]}: each must be 1 or 2"
        )
    logging.info("Logical axis rules for activation_partitioning_dims=%d, parameter_partitioning_dims=%d", *dims)
    embed = [("embed", "model")] * (dims[0] == 2) + [("embed", "data")] * (dims[1] == 2)
    sharded = [("vocab", "model"), ("mlp", "model"), ("heads", "model"), ("kv", None), ("joined_kv", "model")]
    if not embed:
        sharded.insert(1, ("embed", None))
    return [("batch", "data"), *sharded, *embed, *((axis, None) for axis in _REPLICATED), *(additional_rules or ())]
