"""The table of a model's variables that a run logs and writes to ``model-info.txt``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from absl import logging
from t5x import partitioning
from t5x import train_state as train_state_lib
from t5x._utils.callables import PyTree
from tensorflow.io import gfile


def log_model_info(
    log_file: str | None, full_train_state: train_state_lib.TrainState, partitioner: partitioning.BasePartitioner
) -> None:
    """Logs name, size, shape and partitioning of every variable; only the first host does.

    Args:
        log_file: Where to write the table too; None writes no file.
        full_train_state: The train state with global shapes.
        partitioner: Knows how the variables are partitioned.
    """
    if jax.process_index() != 0:
        return
    lines = list(_table(full_train_state, partitioner))
    for line in lines:
        logging.info("%s", line)
    if log_file is not None:
        with gfile.GFile(log_file, "w") as file:
            file.write("".join(f"{line}\n" for line in lines))


def _table(full_train_state: train_state_lib.TrainState, partitioner: partitioning.BasePartitioner) -> Iterator[str]:
    """The parameters, their number, an empty line, and the optimizer's state."""
    variables = full_train_state.state_dict()
    logical = partitioner.get_logical_axes(full_train_state).state_dict()
    mesh = partitioner.get_mesh_axes(full_train_state).state_dict()
    yield from _rows("", variables["target"], logical["target"], mesh["target"])
    yield f"Total number of parameters: {sum(np.size(leaf) for leaf in jax.tree.leaves(variables['target']))}"
    yield ""
    yield from _rows("", variables["state"], logical["state"], mesh["state"])


def _rows(name: str, variable: PyTree, logical: PyTree, mesh: PyTree) -> Iterator[str]:
    if isinstance(variable, Mapping):  # optimizers without state leave empty ones, which have no row
        for key in sorted(variable):
            yield from _rows(f"{name}/{key}" if name else key, variable[key], logical[key], mesh[key])
    elif variable is None:
        yield f"Variable    {name:<80s} None"
    else:
        spec = None if mesh is None else tuple(mesh)
        shape = _shape(variable, logical)
        yield f"Variable {name:<80s} size {variable.size:<12} shape {shape:<40s} partition spec {spec}"


def _shape(variable: Any, logical: tuple[str, ...] | None) -> str:
    """The shape, each dimension after the logical axis it is named by."""
    if logical is None or len(logical) != len(variable.shape):
        return str(variable.shape)
    return "({})".format(", ".join(f"{axis}={size}" for axis, size in zip(logical, variable.shape, strict=True)))
