"""Names of parameters, and of the logical axes that they are partitioned by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import flax.core
from absl import logging
from flax import traverse_util
from flax.core import scope as flax_scope
from flax.linen import partitioning as flax_partitioning


def flatten_dict_string_keys(x: Mapping[str, Any]) -> Mapping[str, Any]:
    """Flattens a nested dictionary; the keys on the way to a value are joined by ``/``."""
    return traverse_util.flatten_dict(flax.core.unfreeze(x), sep="/")


def override_params_axes_names(
    model_variables: flax_scope.FrozenVariableDict,
    params_axes_names_override: Sequence[tuple[str, tuple[str, ...]]] = (),
) -> flax_scope.FrozenVariableDict:
    """Renames the logical axes of parameters.

    Args:
        model_variables: A model's variables, 'params' and 'params_axes' among them.
        params_axes_names_override: Pairs of a regex and axis names. A parameter takes the names of the first regex
            that matches all of its ``/``-joined name, and keeps its own if none does.

    Returns:
        The variables with 'params_axes' changed.

    Raises:
        ValueError: There is no 'params_axes' collection, or there are more or fewer names than a parameter has axes.
        AssertionError: A parameter's entry in 'params_axes' is not axis metadata.
    """
    if "params_axes" not in model_variables:
        raise ValueError(
            "Model variables do not contain a 'params_axes' collection, so there are no axis names to override; they "
            f"contain {', '.join(sorted(model_variables)) or 'nothing'}."
        )
    rules = [(re.compile(pattern), names) for pattern, names in params_axes_names_override]
    variables = flax.core.unfreeze(model_variables)
    axes = traverse_util.flatten_dict(variables["params_axes"])
    for path, param in traverse_util.flatten_dict(variables["params"]).items():
        name = "/".join(path)
        names = next((names for pattern, names in rules if pattern.fullmatch(name)), None)
        if names is None:
            continue
        if param.ndim != len(names):
            raise ValueError(
                f"The axis names {tuple(names)} for {name} do not match its rank: {len(names)} names for {param.ndim} "
                "axes."
            )
        axes_path = (*path[:-1], f"{path[-1]}_axes")
        present = axes.get(axes_path)
        assert present is None or isinstance(present, flax_partitioning.AxisMetadata), f"{name}: {present!r}"
        logging.info("Axes of %s: %s instead of %s", name, names, present.names if present else "none")
        axes[axes_path] = flax_partitioning.AxisMetadata(names=names)
    variables["params_axes"] = traverse_util.unflatten_dict(axes)
    return flax.core.freeze(variables)
