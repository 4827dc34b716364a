"""The table of parameters in ``model-info.txt``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from t5x.partitioning import BasePartitioner
    from t5x.train_state import TrainState
    from t5x.utils import PyTree


def table(full_train_state: TrainState, partitioner: BasePartitioner) -> Iterator[str]:
    """Yields the lines of the table: the parameters, their number, an empty line, and the optimizer's state."""
    variables = full_train_state.state_dict()
    logical = partitioner.get_logical_axes(full_train_state).state_dict()
    mesh = partitioner.get_mesh_axes(full_train_state).state_dict()
    yield from _rows("", variables["target"], logical["target"], mesh["target"])
    yield f"Total number of parameters: {sum(np.size(leaf) for leaf in jax.tree.leaves(variables['target']))}"
    yield ""
    yield from _rows("", variables["state"], logical["state"], mesh["state"])


def _rows(name: str, variable: PyTree, logical: PyTree, mesh: PyTree) -> Iterator[str]:
    if isinstance(variable, Mapping):  # optimizers without state leave empty leaves, which get no row
        for key in sorted(variable):
            yield from _rows(f"{name}/{key}" if name else key, variable[key], logical[key], mesh[key])
    elif variable is None:
        yield f"Variable    {name:<80s} None"
    else:
        spec = None if mesh is None else tuple(mesh)
        shape = _shape(variable, logical)
        yield f"Variable {name:<80s} size {variable.size:<12} shape {shape:<40s} partition spec {spec}"


def _shape(variable: Any, logical: tuple[str, ...] | None) -> str:
    """Returns the shape, each dimension preceded by its logical axis."""
    if logical is None or len(logical) != len(variable.shape):
        return str(variable.shape)
    return "({})".format(", ".join(f"{axis}={size}" for axis, size in zip(logical, variable.shape, strict=True)))
