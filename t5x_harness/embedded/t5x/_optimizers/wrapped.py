"""Optax optimizers behind T5X's optimizer interface."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.core
import flax.struct
import jax
import optax
from flax import serialization, traverse_util
from t5x._optimizers.base import Optimizer, OptimizerDef, OptimizerState
from t5x._optimizers.optax_axes import OptaxStatePartitionRules
from t5x._shown_as import shown_as


@flax.struct.dataclass
class _OptaxHyperParams:
    """What trainers set at each step. Optax optimizers bring their own schedule and do not read it."""

    learning_rate: Any = None


@shown_as("t5x.optimizers")
class OptaxWrapper(OptimizerDef):
    """Trains with an optax gradient transformation.

    The learning rate that a trainer passes at each step is not used: the transformation has its own.

    Args:
        optax_optimizer: the transformation.
    """

    def __init__(self, optax_optimizer: optax.GradientTransformation):
        super().__init__(hyper_params=_OptaxHyperParams())
        self.optax_optimizer = optax_optimizer

    def init_state(self, params: Any) -> OptimizerState:
        """Returns the state at step 0 for these parameters."""
        return OptimizerState(step=0, param_states=self.optax_optimizer.init(params))

    def apply_gradient(
        self, hyper_params: Any, params: Any, state: OptimizerState, grads: Any
    ) -> tuple[Any, OptimizerState]:
        """Returns the parameters and the state after one update; ``hyper_params`` is not read."""
        del hyper_params
        updates, param_states = self.optax_optimizer.update(grads, state.param_states, params)
        return optax.apply_updates(params, updates), OptimizerState(step=state.step + 1, param_states=param_states)

    def derive_logical_axes(self, optimizer: Optimizer, param_logical_axes: Any) -> Optimizer:
        """Returns the optimizer with axis names, or None, in place of arrays.

        Raises:
            ValueError: the optax state is of a type that has no known partitioning.
        """
        axes = jax.tree.map(lambda _: None, optimizer.state_dict())
        axes["target"] = flax.core.unfreeze(param_logical_axes)
        state_axes = OptaxStatePartitionRules.derive_optax_logical_axes(
            optimizer.state.param_states, param_logical_axes
        )
        axes["state"]["param_states"] = flax.core.unfreeze(serialization.to_state_dict(state_axes))
        return optimizer.restore_state(axes)

    def state_dict(self, target: Any, state: OptimizerState) -> dict[str, Any]:
        """Returns parameters and state as nested dicts, without the empty branches of ``optax.EmptyState``."""
        tree = super().state_dict(target, state)
        # A checkpoint has no place for an empty branch; restore_state puts them back.
        tree["state"] = traverse_util.unflatten_dict(traverse_util.flatten_dict(tree["state"]))
        return tree

    def restore_state(
        self, opt_target: Any, opt_state: OptimizerState, state_dict: Mapping[str, Any]
    ) -> tuple[Any, OptimizerState]:
        """Puts the values of a state dict into parameters and a state of the same structure.

        Raises:
            ValueError: the state dict lacks a value that the optimizer state needs.
        """
        values = traverse_util.flatten_dict(state_dict["state"])
        structure = traverse_util.flatten_dict(serialization.to_state_dict(opt_state), keep_empty_nodes=True)
        missing = [path for path, leaf in structure.items() if leaf is not traverse_util.empty_node]
        missing = ["/".join(("state", *path)) for path in missing if path not in values]
        if missing:
            raise ValueError(f"The state to restore lacks what the optimizer needs: {', '.join(missing)}")
        complete = traverse_util.unflatten_dict(structure | values)
        return super().restore_state(opt_target, opt_state, {"target": state_dict["target"], "state": complete})


@shown_as("t5x.optimizers")
def wrap_optax_optimizer(optax_optimizer: Callable[..., optax.GradientTransformation]) -> Callable[..., OptimizerDef]:
    """Turns a function that makes an optax optimizer into one that makes an :class:`OptimizerDef`.

    Args:
        optax_optimizer: for example ``optax.adamw``. Its signature is kept, so that gin can bind its arguments.
    """

    @functools.wraps(optax_optimizer)
    def make(*args: Any, **kwargs: Any) -> OptimizerDef:
        return OptaxWrapper(optax_optimizer(*args, **kwargs))

    return make
