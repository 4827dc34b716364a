"""The state of training: parameters, optimizer state, step and mutable collections, as one value."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol, runtime_checkable

import flax.core
import flax.struct
import jax
import jax.numpy as jnp
from flax import traverse_util
from flax.core import FrozenDict
from flax.core.scope import FrozenVariableDict as FrozenVariableDict
from flax.core.scope import MutableVariableDict as MutableVariableDict
from flax.core.scope import VariableDict as VariableDict
from flax.linen import partitioning as flax_partitioning
from t5x import optimizers
from t5x._errors import with_hint
from t5x.optimizers import PyTree

EMPTY_DICT: FrozenDict[str, Any] = flax.core.freeze({})
_AXES_SUFFIX = "_axes"


@runtime_checkable
class TrainState(Protocol):
    """The interface of a state for trainers, checkpoints and partitioners."""

    @property
    def step(self) -> jax.Array:
        """The number of updates made: an int32 scalar."""

    @property
    def params(self) -> FrozenDict[str, Any]:
        """The model's parameters."""

    @property
    def param_states(self) -> FrozenDict[str, Any]:
        """The optimizer's state for each parameter."""

    @property
    def flax_mutables(self) -> FrozenDict[str, Any]:
        """The mutable collections of the model, such as batch statistics."""

    def state_dict(self) -> MutableMapping[str, Any]:
        """Returns the state as nested dicts, the form that checkpoints keep."""

    def restore_state(self, state_dict: Mapping[str, Any]) -> TrainState:
        """Returns a copy that holds the values of ``state_dict``."""

    def replace_params(self, params: Mapping[str, Any]) -> TrainState:
        """Returns a copy with other parameters."""

    def replace_flax_mutables(self, flax_mutables: FrozenDict[str, Any]) -> TrainState:
        """Returns a copy with other mutable collections."""

    def replace_step(self, step: jax.Array) -> TrainState:
        """Returns a copy at another step."""

    def apply_gradient(
        self, grads: PyTree, learning_rate: jax.Array | float, flax_mutables: FrozenDict[str, Any] = EMPTY_DICT
    ) -> TrainState:
        """Returns the state after one update."""

    def as_logical_axes(self) -> TrainState:
        """Returns a copy whose leaves are logical axis names, or None for a leaf that is replicated."""


class _ModelVariables:
    """The variables that ``Module.init`` returned, split into parameters, mutables and the axis names of both."""

    def __init__(self, variables: Mapping[str, Any]):
        axes = {name: tree for name, tree in variables.items() if name.endswith(_AXES_SUFFIX)}
        values = {name: tree for name, tree in variables.items() if name not in axes}
        for name, tree in axes.items():
            _check_every_leaf_is_named(name, tree, values.get(name.removesuffix(_AXES_SUFFIX), {}))
        self.params = values.pop("params")
        self.params_axes = axes.pop("params_axes", None)
        self.mutables = flax.core.freeze(values)
        mutables_axes = {name.removesuffix(_AXES_SUFFIX): tree for name, tree in axes.items()}
        self.mutables_axes = flax.core.freeze(mutables_axes) or None


def _check_every_leaf_is_named(collection: str, axes: PyTree, values: PyTree) -> None:
    named = traverse_util.flatten_dict(flax_partitioning.get_axis_names(axes), sep="/")
    unnamed = sorted(set(traverse_util.flatten_dict(values, sep="/")) - set(named))
    if unnamed:
        raise with_hint(
            ValueError(f"Missing axis names for parameters: {{{', '.join(map(repr, unnamed))}}}"),
            f"They are missing in the model's collection {collection!r}: declare them with param_with_axes.",
        )


class FlaxOptimTrainState(flax.struct.PyTreeNode):
    """A train state around a ``t5x.optimizers.Optimizer``, with the model's axis metadata."""

    _optimizer: optimizers.OptimizerType
    params_axes: FrozenDict[str, Any] | None = None
    flax_mutables: FrozenDict[str, Any] = EMPTY_DICT
    flax_mutables_axes: FrozenDict[str, Any] | None = None

    @classmethod
    def create(
        cls, optimizer_def: optimizers.OptimizerDefType, model_variables: FrozenDict[str, Any]
    ) -> FlaxOptimTrainState:
        """Makes the state at step 0 from the result of ``Module.init``: ``params`` and usually ``params_axes``.

        An optimizer with a method ``set_param_axes`` gets the model's axis names.

        Raises:
            ValueError: the optimizer needs axis names that the model does not give, or some are missing.
        """
        model = _ModelVariables(model_variables)
        if hasattr(optimizer_def, "set_param_axes"):
            if model.params_axes is None:
                raise with_hint(
                    ValueError(
                        "The optimizer supports params_axes for model-based partitioning, but the model is not "
                        "emitting them."
                    ),
                    f"{type(optimizer_def).__name__} factors parameters by their axis names, but the model has no "
                    "collection 'params_axes': declare parameters with param_with_axes.",
                )
            optimizer_def.set_param_axes(flax_partitioning.get_axis_names(model.params_axes))
        return cls(
            _optimizer=optimizer_def.create(model.params),
            params_axes=model.params_axes,
            flax_mutables=model.mutables,
            flax_mutables_axes=model.mutables_axes,
        )

    @property
    def step(self) -> jax.Array:
        """The number of updates made."""
        return self._optimizer.state.step

    @property
    def params(self) -> FrozenDict[str, Any]:
        """The model's parameters."""
        return self._optimizer.target

    @property
    def param_states(self) -> FrozenDict[str, Any]:
        """The optimizer's state for each parameter."""
        return self._optimizer.state.param_states

    def state_dict(self) -> MutableMapping[str, Any]:
        """Returns ``{"target": ..., "state": {"step": ..., "param_states": ...}}`` and the mutables, if any."""
        tree = self._optimizer.state_dict()
        if self.flax_mutables:
            tree["flax_mutables"] = flax.core.unfreeze(self.flax_mutables)
        return tree

    def restore_state(self, state_dict: Mapping[str, Any]) -> FlaxOptimTrainState:
        """Returns a copy that holds the values of ``state_dict``."""
        return self.replace(
            _optimizer=self._optimizer.restore_state(state_dict),
            flax_mutables=_mutables_of(state_dict),
        )

    def replace_params(self, params: Mapping[str, Any]) -> FlaxOptimTrainState:
        """Returns a copy with other parameters."""
        return self.replace(_optimizer=self._optimizer.replace(target=params))

    def replace_flax_mutables(self, flax_mutables: FrozenDict[str, Any]) -> FlaxOptimTrainState:
        """Returns a copy with other mutable collections."""
        return self.replace(flax_mutables=flax_mutables)

    def replace_step(self, step: jax.Array) -> FlaxOptimTrainState:
        """Returns a copy at another step."""
        optimizer_state = self._optimizer.state.replace(step=step)
        return self.replace(_optimizer=self._optimizer.replace(state=optimizer_state))

    def apply_gradient(
        self, grads: PyTree, learning_rate: jax.Array | float, flax_mutables: FrozenDict[str, Any] = EMPTY_DICT
    ) -> FlaxOptimTrainState:
        """Returns the state after one update; optimizers that wrap optax ignore ``learning_rate``."""
        updated = self._optimizer.apply_gradient(grads, learning_rate=learning_rate)
        return self.replace(_optimizer=updated, flax_mutables=flax_mutables)

    def as_logical_axes(self) -> FlaxOptimTrainState:
        """Returns a copy whose leaves are logical axis names, or None.

        Raises:
            ValueError: the optimizer has no ``derive_logical_axes``.
        """
        definition = self._optimizer.optimizer_def
        if not hasattr(definition, "derive_logical_axes"):
            raise ValueError(
                f"{type(definition).__name__} cannot be partitioned by axis names: it has no method derive_logical_axes"
            )
        param_axes = flax_partitioning.get_axis_names(self.params_axes)
        return FlaxOptimTrainState(
            _optimizer=definition.derive_logical_axes(self._optimizer, param_axes),
            flax_mutables=flax_partitioning.get_axis_names(self.flax_mutables_axes or EMPTY_DICT),
        )


class InferenceState(flax.struct.PyTreeNode):
    """A train state without an optimizer, for evaluation and inference."""

    step: jax.Array | None
    params: FrozenDict[str, Any]
    params_axes: FrozenDict[str, Any] | None = None
    flax_mutables: FrozenDict[str, Any] = EMPTY_DICT
    flax_mutables_axes: FrozenDict[str, Any] | None = None

    @classmethod
    def create(cls, model_variables: FrozenDict[str, Any]) -> InferenceState:
        """Makes the state at step 0 from the result of ``Module.init``."""
        model = _ModelVariables(model_variables)
        return cls(
            step=jnp.array(0),
            params=model.params,
            params_axes=model.params_axes,
            flax_mutables=model.mutables,
            flax_mutables_axes=model.mutables_axes,
        )

    @property
    def param_states(self) -> FrozenDict[str, Any]:
        """Raises NotImplementedError: there is no optimizer state."""
        raise NotImplementedError("An InferenceState has no optimizer state.")

    def apply_gradient(self, *args: Any, **kwargs: Any) -> InferenceState:
        """Raises NotImplementedError: there is no optimizer."""
        raise NotImplementedError("An InferenceState cannot be trained: it has no optimizer.")

    def state_dict(self) -> MutableMapping[str, Any]:
        """Returns ``{"target": ..., "state": {"step": ...}}`` and the mutables, if any."""
        tree: dict[str, Any] = {"target": flax.core.unfreeze(self.params), "state": {"step": self.step}}
        if self.flax_mutables:
            tree["flax_mutables"] = flax.core.unfreeze(self.flax_mutables)
        return tree

    def restore_state(self, state_dict: Mapping[str, Any]) -> InferenceState:
        """Returns a copy that holds the values of ``state_dict``, without its optimizer state."""
        return self.replace(
            step=state_dict["state"]["step"],
            params=flax.core.freeze(state_dict["target"]),
            flax_mutables=_mutables_of(state_dict),
        )

    def replace_step(self, step: jax.Array) -> InferenceState:
        """Returns a copy at another step."""
        return self.replace(step=step)

    def replace_params(self, params: FrozenDict[str, Any]) -> InferenceState:
        """Returns a copy with other parameters."""
        return self.replace(params=params)

    def replace_flax_mutables(self, flax_mutables: FrozenDict[str, Any]) -> InferenceState:
        """Returns a copy with other mutable collections."""
        return self.replace(flax_mutables=flax_mutables)

    def as_logical_axes(self) -> InferenceState:
        """Returns a copy whose leaves are logical axis names; the step's is None, which means replicated."""
        return InferenceState(
            step=None,
            params=flax_partitioning.get_axis_names(self.params_axes),
            flax_mutables=flax_partitioning.get_axis_names(self.flax_mutables_axes or EMPTY_DICT),
        )


def _mutables_of(state_dict: Mapping[str, Any]) -> FrozenDict[str, Any]:
    return flax.core.freeze(state_dict.get("flax_mutables", EMPTY_DICT))
