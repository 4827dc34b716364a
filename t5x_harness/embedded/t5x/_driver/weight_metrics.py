"""Metrics about the weights themselves: how large they are, and how far a step moved them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import clu.metrics
import jax
import jax.numpy as jnp
from t5x import metrics as metrics_lib
from t5x import utils


def _rms(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.square(x)))


def _largest(x: jax.Array) -> jax.Array:
    return jnp.max(jnp.abs(x))


class WeightMetricsComputer:
    """Computes metrics of every parameter after each step; given to a trainer as ``weight_metrics_computer``."""

    def compute_metrics(
        self, gradients: Mapping[str, Any], old_train_state: Any, new_train_state: Any
    ) -> MutableMapping[str, clu.metrics.Metric]:
        """Compares the weights before and after a step.

        Args:
            gradients: the gradient of every parameter, a tree like the parameters.
            old_train_state: before the step.
            new_train_state: after it.

        Returns:
            Metrics averaged per step.  Tags are ``weight_rms``, ``weight_gradient_rms``, ``weight_update_rms``,
            ``weight_update_divided_by_weight_rms`` and ``weight_max``, each followed by ``/`` and the parameter's
            path, and ``weight_gradient_norm`` over all gradients together.
        """
        old, new = old_train_state.params, new_train_state.params
        update = jax.tree.map(jnp.subtract, new, old)
        measured: list[tuple[str, Callable[[jax.Array], jax.Array], Any]] = [
            ("weight_rms", _rms, new),
            ("weight_gradient_rms", _rms, gradients),
            ("weight_update_rms", _rms, update),
            ("weight_update_divided_by_weight_rms", _rms, jax.tree.map(jnp.divide, update, old)),
            ("weight_max", _largest, new),
        ]
        values = {
            f"{tag}/{path}": measure(leaf)
            for tag, measure, tree in measured
            for path, leaf in utils.flatten_dict_string_keys(tree).items()
        }
        squares = jnp.array([jnp.vdot(g, g) for g in jax.tree.leaves(gradients)])
        values["weight_gradient_norm"] = jnp.sqrt(jnp.sum(squares))
        return {tag: metrics_lib.AveragePerStep.from_model_output(value) for tag, value in values.items()}
