"""An optimizer as T5X holds it: a definition, the parameters it trains and its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.struct
from flax import serialization
from t5x._shown_as import shown_as


@shown_as("t5x.optimizers")
@flax.struct.dataclass
class OptimizerState:
    """Where an optimizer is.

    Attributes:
        step: updates made, an int32 scalar.
        param_states: what the optimizer remembers of each parameter.
    """

    step: Any  # an array, or a leaf of another kind in a state of axis names
    param_states: Any


@shown_as("t5x.optimizers")
class OptimizerDef:
    """The rule of an optimizer, without any arrays.

    Args:
        hyper_params: a dataclass with a ``replace`` method; values given at each step override it.
    """

    def __init__(self, hyper_params: Any):
        self.hyper_params = hyper_params

    def init_state(self, params: Any) -> OptimizerState:
        """Returns the state at step 0 for these parameters."""
        raise NotImplementedError(f"{type(self).__name__}.init_state")

    def apply_gradient(
        self, hyper_params: Any, params: Any, state: OptimizerState, grads: Any
    ) -> tuple[Any, OptimizerState]:
        """Returns the parameters and the state after one update."""
        raise NotImplementedError(f"{type(self).__name__}.apply_gradient")

    def update_hyper_params(self, **hyper_param_overrides: Any) -> Any:
        """Returns the hyperparameters of one step.

        Args:
            **hyper_param_overrides: values that replace the definition's own; ``hyper_params=`` replaces all of them.
        """
        own = hyper_param_overrides.pop("hyper_params", self.hyper_params)
        return own.replace(**hyper_param_overrides) if hyper_param_overrides else own

    def create(self, target: Any) -> Optimizer:
        """Returns an optimizer for these parameters, at step 0."""
        return Optimizer(optimizer_def=self, state=self.init_state(target), target=target)

    def state_dict(self, target: Any, state: OptimizerState) -> dict[str, Any]:
        """Returns parameters and state as nested dicts under ``target`` and ``state``."""
        return {"target": serialization.to_state_dict(target), "state": serialization.to_state_dict(state)}

    def restore_state(
        self, opt_target: Any, opt_state: OptimizerState, state_dict: Mapping[str, Any]
    ) -> tuple[Any, OptimizerState]:
        """Puts the values of a state dict into parameters and a state of the same structure."""
        return (
            serialization.from_state_dict(opt_target, state_dict["target"]),
            serialization.from_state_dict(opt_state, state_dict["state"]),
        )


@shown_as("t5x.optimizers")
class Optimizer(flax.struct.PyTreeNode):
    """A definition together with the parameters it trains.

    Attributes:
        optimizer_def: the rule; not part of the tree.
        state: step and what is remembered of each parameter.
        target: the parameters.
    """

    optimizer_def: OptimizerDef = flax.struct.field(pytree_node=False)
    state: Any
    target: Any

    def apply_gradient(self, grads: Any, **hyper_param_overrides: Any) -> Optimizer:
        """Returns the optimizer after one update.

        Args:
            grads: gradients, a tree like ``target``.
            **hyper_param_overrides: hyperparameters of this step, such as ``learning_rate``.
        """
        definition = self.optimizer_def
        hyper_params = definition.update_hyper_params(**hyper_param_overrides)
        target, state = definition.apply_gradient(hyper_params, self.target, self.state, grads)
        return self.replace(target=target, state=state)

    def state_dict(self) -> dict[str, Any]:
        """Returns parameters and state as nested dicts."""
        return self.optimizer_def.state_dict(self.target, self.state)

    def restore_state(self, state: Mapping[str, Any]) -> Optimizer:
        """Returns a copy that holds the values of a state dict."""
        target, restored = self.optimizer_def.restore_state(self.target, self.state, state)
        return self.replace(target=target, state=restored)
