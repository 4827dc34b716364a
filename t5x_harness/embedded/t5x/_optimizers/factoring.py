"""Which dimensions of a parameter Adafactor keeps one second moment for, rather than one for each element."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import flax.core
import numpy as np
from absl import logging
from flax import serialization, traverse_util
from t5x._shown_as import shown_as


@shown_as("t5x.adafactor")
class FactorDim(enum.Enum):
    """What a dimension of a parameter is to the factored second moment."""

    NONE = None  # not factored
    BATCH = 1  # stacks independent parameters: nothing is averaged over it
    ROW = 2
    COLUMN = 3


@shown_as("t5x.adafactor")
class HeuristicRule(enum.Enum):
    """The rule for parameters without one: factor the two largest dimensions, if they are large enough."""

    token = 1


HEURISTIC_RULE = HeuristicRule.token
FactorRule: TypeAlias = HeuristicRule | tuple[FactorDim, ...] | None


@shown_as("t5x.adafactor")
def standard_logical_factor_rules() -> flax.core.FrozenDict[str, FactorDim]:
    """Returns the factor dimension of each axis name that T5X's networks use."""
    by_dimension = {
        FactorDim.ROW: ("embed",),
        FactorDim.COLUMN: (
            "vocab",
            "mlp",
            "heads",
            "kv",
            "joined_kv",
            "q_wi_fused",
            "o_wo_fused",
            "multiquery_heads",
            "kv_fused",
            "mlp_activations",
        ),
        FactorDim.BATCH: ("layers", "stack"),
        FactorDim.NONE: ("relpos_buckets", "layer_norm_scale"),
    }
    return flax.core.freeze({axis: dimension for dimension, axes in by_dimension.items() for axis in axes})


@shown_as("t5x.adafactor")
def factor_name_to_factordim(name: str | FactorDim) -> FactorDim:
    """Turns a name as gin files write it into a :class:`FactorDim`.

    Args:
        name: ``row``, ``col``, ``column``, ``batch``, ``none`` or ``unfactorized`` in any case, or a FactorDim.

    Raises:
        KeyError: another name.
    """
    if not isinstance(name, str):
        return name
    synonyms = {"COL": "COLUMN", "UNFACTORIZED": "NONE"}
    key = name.upper()
    try:
        return FactorDim[synonyms.get(key, key)]
    except KeyError:
        raise KeyError(f"{name!r} is not a factor dimension: use row, column, batch or none") from None


@shown_as("t5x.adafactor")
class HParamMap:
    """Gives each parameter a value by its path.

    Args:
        rules: pairs of a regular expression, searched for in the path (names joined with ``/``), and the value. The
            first that is found counts.
    """

    def __init__(self, rules: Iterable[tuple[str, Any]]):
        self._rules = [(re.compile(pattern), value) for pattern, value in rules]

    def __getitem__(self, key: str) -> Any:
        for pattern, value in self._rules:
            if pattern.search(key):
                return value
        patterns = ", ".join(repr(pattern.pattern) for pattern, _ in self._rules)
        raise KeyError(f"No rule fits parameter {key!r}. Patterns: {patterns or 'none'}")

    def __call__(self, params: Any) -> Any:
        """Returns a tree like ``params`` with each parameter's value."""
        paths = traverse_util.flatten_dict(serialization.to_state_dict(params))
        values = traverse_util.unflatten_dict({path: self["/".join(path)] for path in paths})
        return serialization.from_state_dict(params, values)


@dataclasses.dataclass(frozen=True)
class Factoring:
    """How one parameter's second moment is kept.

    Attributes:
        scale_dims: the dimensions that the root mean squares of parameter and update are taken over.
        rows: dimensions of the row factor, empty when the moment is not factored.
        columns: dimensions of the column factor.
    """

    scale_dims: tuple[int, ...]
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    @property
    def factored(self) -> bool:
        """Whether row and column factors stand in for the full moment."""
        return bool(self.rows or self.columns)

    def row_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of ``v_row``: the parameter's without its columns."""
        return tuple(size for dim, size in enumerate(shape) if dim not in self.columns)

    def column_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of ``v_col``: the parameter's without its rows."""
        return tuple(size for dim, size in enumerate(shape) if dim not in self.rows)


def plan_factoring(rule: FactorRule, shape: Sequence[int], path: str, min_dim_size: int) -> Factoring:
    """Decides how a parameter's second moment is kept.

    A rule for a parameter of rank 2 or less that has no batch dimension is not used: the heuristic decides there.

    Args:
        rule: a factor dimension for each dimension, the heuristic, or None to keep the full moment.
        shape: of the parameter.
        path: of the parameter, for messages.
        min_dim_size: the heuristic factors only if both dimensions have at least this size.

    Raises:
        ValueError: the rule's length is not the rank, or a parameter of rank 3 or more has no rule.
    """
    every_dim = tuple(range(len(shape)))
    if rule is None:
        return Factoring(every_dim)
    if isinstance(rule, tuple):
        if len(rule) != len(shape):
            raise ValueError(
                f"Parameter {path} has shape {tuple(shape)}, rank {len(shape)}, but its factor rule {rule} has "
                f"{len(rule)} dimensions"
            )
        if len(shape) > 2 or FactorDim.BATCH in rule:
            rows, columns = (tuple(i for i in every_dim if rule[i] is dim) for dim in (FactorDim.ROW, FactorDim.COLUMN))
            return Factoring(tuple(i for i in every_dim if rule[i] is not FactorDim.BATCH), rows, columns)
        logging.warning("%s: rank %d, so its factor rule %s gives way to the heuristic", path, len(shape), rule)
    if len(shape) > 2:
        raise ValueError(
            f"Parameter {path} has shape {tuple(shape)}: a rank above 2 needs a factor rule. "
            "Set Adafactor.logical_factor_rules or factor_map, or factored=False"
        )
    by_size = [int(i) for i in np.argsort(shape)]
    if len(shape) < 2 or shape[by_size[-2]] < min_dim_size:
        return Factoring(every_dim)
    return Factoring(every_dim, rows=(by_size[-2],), columns=(by_size[-1],))


def rule_from_axes(axes: Sequence[str], rules: Mapping[str, str | FactorDim], path: str) -> tuple[FactorDim, ...]:
    """Turns a parameter's axis names into its factor rule.

    A parameter without both a row and a column is not factored; only its batch dimensions stay.

    Raises:
        KeyError: an axis name has no rule.
        ValueError: rows and columns do not cover the parameter.
    """
    missing = [axis for axis in axes if axis not in rules]
    if missing:
        raise KeyError(f"Adafactor's logical_factor_rules lack axis {missing[0]!r} of parameter {path}, {tuple(axes)}")
    dims = tuple(factor_name_to_factordim(rules[axis]) for axis in axes)
    if FactorDim.ROW in dims and FactorDim.COLUMN in dims:
        if FactorDim.NONE in dims:
            pairs = ", ".join(f"{axis}={dim.name}" for axis, dim in zip(axes, dims, strict=True))
            raise ValueError(f"Parameter {path} is factored along rows and columns, so no axis can be NONE: {pairs}")
        return dims
    return tuple(dim if dim is FactorDim.BATCH else FactorDim.NONE for dim in dims)
