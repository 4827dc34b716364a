"""Several optimizers for one model, each for its own parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.core
import jax.numpy as jnp
from flax import traverse_util
from t5x._optimizers.base import Optimizer, OptimizerDef, OptimizerState
from t5x._shown_as import shown_as

_Path = tuple[str, ...]
_Flat = dict[_Path, Any]


@shown_as("t5x.optimizers")
class MultiOptimizer(OptimizerDef):
    """Splits the parameters among optimizers by traversals.

    A parameter that no traversal matches stays as it is, and its state is None. Hyperparameters are a list, one entry
    for each optimizer in order.

    Args:
        traversals_and_optimizers: pairs of a ``flax.traverse_util.Traversal`` and the optimizer of what it matches.
    """

    def __init__(self, traversals_and_optimizers: Sequence[tuple[traverse_util.Traversal, OptimizerDef]]):
        self.traversals = tuple(traversal for traversal, _ in traversals_and_optimizers)
        self.sub_optimizers = tuple(optimizer for _, optimizer in traversals_and_optimizers)
        super().__init__([optimizer.hyper_params for optimizer in self.sub_optimizers])

    def init_state(self, params: Any) -> OptimizerState:
        """Returns the state at step 0.

        Raises:
            ValueError: several optimizers match the same parameter.
            TypeError: an optimizer's state is not a tree like the parameters, as with those that wrap optax.
        """
        self._refuse_overlaps(params)
        states = [optimizer.init_state(self._select(i, params)) for i, optimizer in enumerate(self.sub_optimizers)]
        for optimizer, state in zip(self.sub_optimizers, states, strict=True):
            if not isinstance(state.param_states, dict | flax.core.FrozenDict):
                raise TypeError(
                    f"MultiOptimizer cannot divide the state of {type(optimizer).__name__}, which is not a tree "
                    "like the parameters. Combine optax optimizers by optax.multi_transform or optax.masked instead"
                )
        return OptimizerState(
            step=jnp.asarray(0, dtype=jnp.int32),
            param_states=self._combine(params, [state.param_states for state in states]),
        )

    def apply_gradient(
        self, hyper_params: Any, params: Any, state: OptimizerState, grads: Any
    ) -> tuple[Any, OptimizerState]:
        """Returns the parameters and the state after one update of every optimizer."""
        new_params, new_states = [], []
        for i, (optimizer, own_hyper_params) in enumerate(zip(self.sub_optimizers, hyper_params, strict=True)):
            updated, updated_state = optimizer.apply_gradient(
                own_hyper_params,
                self._select(i, params),
                OptimizerState(state.step, self._select(i, params, state.param_states)),
                self._select(i, params, grads),
            )
            new_params.append(updated)
            new_states.append(updated_state.param_states)
        return self._combine(params, new_params, default=_flat(params).__getitem__), OptimizerState(
            step=state.step + 1, param_states=self._combine(params, new_states)
        )

    def update_hyper_params(self, **hyper_param_overrides: Any) -> Any:
        """Returns the hyperparameters of one step, with the overrides applied for every optimizer."""
        own = hyper_param_overrides.pop("hyper_params", self.hyper_params)
        return [entry.replace(**hyper_param_overrides) for entry in own] if hyper_param_overrides else own

    def set_param_axes(self, param_logical_axes: Any) -> None:
        """Tells each optimizer that wants to know the axis names of its parameters."""
        for i, optimizer in enumerate(self.sub_optimizers):
            if hasattr(optimizer, "set_param_axes"):
                optimizer.set_param_axes(self._select(i, param_logical_axes))

    def derive_logical_axes(self, optimizer: Optimizer, param_logical_axes: Any) -> Optimizer:
        """Returns the optimizer with axis names, or None, in place of arrays."""
        axes: list[Any] = []
        for i, definition in enumerate(self.sub_optimizers):
            if not hasattr(definition, "derive_logical_axes"):
                axes.append({})
                continue
            own_axes = self._select(i, param_logical_axes)
            own_state = OptimizerState(None, self._select(i, param_logical_axes, optimizer.state.param_states))
            derived = definition.derive_logical_axes(Optimizer(definition, own_state, own_axes), own_axes)
            axes.append(derived.state.param_states)
        return Optimizer(
            optimizer_def=optimizer.optimizer_def,
            state=OptimizerState(None, self._combine(param_logical_axes, axes)),
            target=param_logical_axes,
        )

    def _matches(self, index: int, params: Any) -> list[_Path]:
        """The paths of the parameters that one traversal matches."""
        paths = {path: path for path in _flat(params)}
        # A path is a leaf only when it is not a pytree: an object that holds it.
        tree = _nest(params, {path: _Box(path) for path in paths})
        return [box.path for box in self.traversals[index].iterate(tree)]

    def _refuse_overlaps(self, params: Any) -> None:
        owners: dict[_Path, list[int]] = {}
        for index in range(len(self.traversals)):
            for path in self._matches(index, params):
                owners.setdefault(path, []).append(index)
        shared = {"/".join(path): which for path, which in owners.items() if len(which) > 1}
        if shared:
            listing = "; ".join(f"{path} by optimizers {which}" for path, which in sorted(shared.items()))
            raise ValueError(f"Each parameter can have one optimizer only, but these are matched by several: {listing}")

    def _select(self, index: int, params: Any, values: Any = None) -> Any:
        """The part of ``values`` (by default the parameters) that belongs to one optimizer."""
        leaves = _flat(params) if values is None else _flat(values, stop_at=_flat(params))
        return _nest(params, {path: leaves[path] for path in self._matches(index, params)})

    def _combine(self, params: Any, parts: Sequence[Any], default: Callable[[_Path], Any] = lambda path: None) -> Any:
        """One tree for all parameters out of what each optimizer returned for its own."""
        own_paths = _flat(params)
        leaves = {path: default(path) for path in own_paths}
        for part in parts:
            leaves.update(_flat(part, stop_at=own_paths))
        return _nest(params, leaves)


class _Box:
    """Holds a path where a tree needs a leaf."""

    def __init__(self, path: _Path):
        self.path = path


def _flat(tree: Any, stop_at: Mapping[_Path, Any] | None = None) -> _Flat:
    """Flattens nested dicts; with ``stop_at``, what lies at a parameter's path is a leaf even when it is a dict."""
    is_leaf = None if stop_at is None else (lambda path, _: path in stop_at)
    return traverse_util.flatten_dict(flax.core.unfreeze(tree), is_leaf=is_leaf)


def _nest(like: Any, leaves: Mapping[_Path, Any]) -> Any:
    tree = traverse_util.unflatten_dict(leaves)
    return flax.core.freeze(tree) if isinstance(like, flax.core.FrozenDict) else tree
