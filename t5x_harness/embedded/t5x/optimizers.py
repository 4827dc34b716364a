"""Optimizers: T5X's interface to them, wrapped optax optimizers, and several optimizers for one model."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import optax
from flax import serialization, traverse_util

PyTree: TypeAlias = Any


@flax.struct.dataclass
class OptimizerState:
    """The state of an optimizer: the number of updates, an int32 scalar, and the state of each parameter."""

    step: Any  # an array, or a leaf of another kind in a state of axis names
    param_states: Any


class OptimizerDef:
    """The rule of an optimizer, without any arrays.

    Its hyperparameters are a dataclass with a ``replace`` method; values given at each step override them.
    """

    def __init__(self, hyper_params: Any):
        self.hyper_params = hyper_params

    def init_state(self, params: PyTree) -> OptimizerState:
        """Returns the state at step 0 for these parameters."""
        raise NotImplementedError(f"{type(self).__name__}.init_state")

    def apply_gradient(
        self, hyper_params: Any, params: PyTree, state: OptimizerState, grads: PyTree
    ) -> tuple[PyTree, OptimizerState]:
        """Returns the parameters and the state after one update."""
        raise NotImplementedError(f"{type(self).__name__}.apply_gradient")

    def update_hyper_params(self, **hyper_param_overrides: Any) -> Any:
        """Returns the hyperparameters of one step: the definition's own, or ``hyper_params``, with these overrides."""
        own = hyper_param_overrides.pop("hyper_params", self.hyper_params)
        return own.replace(**hyper_param_overrides) if hyper_param_overrides else own

    def create(self, target: PyTree) -> Optimizer:
        """Returns an optimizer for these parameters, at step 0."""
        return Optimizer(optimizer_def=self, state=self.init_state(target), target=target)

    def state_dict(self, target: PyTree, state: OptimizerState) -> dict[str, Any]:
        """Returns parameters and state as nested dicts under ``target`` and ``state``."""
        return {"target": serialization.to_state_dict(target), "state": serialization.to_state_dict(state)}

    def restore_state(
        self, opt_target: PyTree, opt_state: OptimizerState, state_dict: Mapping[str, Any]
    ) -> tuple[PyTree, OptimizerState]:
        """Puts the values of a state dict into parameters and a state of the same structure."""
        return (
            serialization.from_state_dict(opt_target, state_dict["target"]),
            serialization.from_state_dict(opt_state, state_dict["state"]),
        )


class Optimizer(flax.struct.PyTreeNode):
    """A definition, which is not part of the tree, together with the state and the parameters it trains."""

    optimizer_def: OptimizerDef = flax.struct.field(pytree_node=False)
    state: Any
    target: PyTree

    def apply_gradient(self, grads: PyTree, **hyper_param_overrides: Any) -> Optimizer:
        """Returns the optimizer after one update, with hyperparameters of this step such as ``learning_rate``."""
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


Dtype = Any
OptimizerType = Optimizer
OptimizerDefType = OptimizerDef
OptimizerStateType = OptimizerState | Mapping[str, Any]


# The fields of optax states that are trees like the parameters; all others are replicated.
_LIKE_PARAMS = frozenset({"ema", "mu", "nu", "sum_of_squares", "trace"})
_NEVER_MASKED = frozenset({"acc_grads"})
_STATES = frozenset({"inner_opt_state", "inner_state", "inner_states"})

# A state type that is missing here is refused instead of guessed: a state with factored arrays would get axes of
# another rank. T5X knows these types and refuses the others too.
_KNOWN_STATES: tuple[type, ...] = (
    optax.AddNoiseState,
    optax.ApplyIfFiniteState,
    optax.ConditionallyTransformState,
    optax.EmaState,
    optax.EmptyState,
    optax.InjectHyperparamsState,
    optax.MaskedState,
    optax.MultiStepsState,
    optax.MultiTransformState,
    optax.ScaleByAdamState,
    optax.ScaleByBeliefState,
    optax.ScaleByLionState,
    optax.ScaleByRStdDevState,
    optax.ScaleByRmsState,
    optax.ScaleByRssState,
    optax.ScaleBySM3State,
    optax.ScaleByScheduleState,
    optax.ScaleByTrustRatioState,
    optax.TraceState,
    optax.ZeroNansState,
    optax.contrib.DifferentiallyPrivateAggregateState,
)


def _state_axes(state: Any, params_axes: PyTree) -> Any:
    axes = {}
    for name, value in state._asdict().items():
        if name in _LIKE_PARAMS:
            axes[name] = OptaxStatePartitionRules.derive_params_axes(value, params_axes)
        elif name in _NEVER_MASKED:
            axes[name] = params_axes
        elif name in _STATES:
            axes[name] = OptaxStatePartitionRules.derive_optax_logical_axes(value, params_axes)
        else:
            axes[name] = jax.tree.map(lambda _: None, value)
    return type(state)(**axes)


class OptaxStatePartitionRules:
    """Gives every array of an optax state the axis names of its parameter, or None.

    ``_RULES`` maps a state type to a function of the state and the parameters' axes, so that a project can add the
    states of its own transformations.
    """

    _RULES: ClassVar[dict[type, Callable[[Any, Any], Any]]] = dict.fromkeys(_KNOWN_STATES, _state_axes)

    @classmethod
    def derive_optax_logical_axes(cls, optax_state: PyTree, params_axes: PyTree) -> Any:
        """Returns a tree like an optax state, or a tree of states, with axis names, or None, for arrays.

        Raises:
            ValueError: the tree has a state of an unknown type.
        """

        def axes_of(node: Any) -> Any:
            rule = cls._rule_for(type(node))
            if rule is not None:
                return rule(node, params_axes)
            if _is_optax_state(node):
                known = sorted(kind.__name__ for kind in cls._RULES)
                raise ValueError(
                    f"The optax state {type(node).__module__}.{type(node).__name__} is not known to be partitionable "
                    f"by axis names. Known: {', '.join(known)}"
                )
            return None

        return jax.tree.map(axes_of, optax_state, is_leaf=_is_optax_state)

    @classmethod
    def derive_params_axes(cls, optax_params: PyTree, params_axes: PyTree) -> Any:
        """Returns the parameters' axis names, with ``MaskedNode`` where a mask left a parameter out."""
        return jax.tree.map(
            lambda axes, value: value if isinstance(value, optax.MaskedNode) else axes, params_axes, optax_params
        )

    @classmethod
    def _rule_for(cls, kind: type) -> Callable[[Any, Any], Any] | None:
        if kind in cls._RULES:
            return cls._RULES[kind]
        # jestimator is not required; its states occur only if it was imported.
        amos, helper = (sys.modules.get(f"jestimator.{name}") for name in ("amos", "amos_helper"))
        if amos is not None and helper is not None and kind is amos.ScaleByAmosState:
            rule: Callable[[Any, Any], Any] = helper.state_partition_rule
            return rule
        return None


def _is_optax_state(node: Any) -> bool:
    """Returns whether a node is an optax state, which has no base class: a named tuple whose name ends in State."""
    return isinstance(node, tuple) and hasattr(node, "_fields") and type(node).__name__.endswith("State")


@flax.struct.dataclass
class _OptaxWrapperHyperParams:
    """The hyperparameters that trainers set at each step. Optax optimizers have their own schedule instead."""

    learning_rate: Any = None


class OptaxWrapper(OptimizerDef):
    """Trains with an optax gradient transformation.

    The learning rate that a trainer passes at each step is not used: the transformation has its own.
    """

    def __init__(self, optax_optimizer: optax.GradientTransformation):
        super().__init__(hyper_params=_OptaxWrapperHyperParams())
        self.optax_optimizer = optax_optimizer

    def init_state(self, params: PyTree) -> OptimizerState:
        """Returns the state at step 0 for these parameters."""
        return OptimizerState(step=0, param_states=self.optax_optimizer.init(params))

    def apply_gradient(
        self, hyper_params: Any, params: PyTree, state: OptimizerState, grads: PyTree
    ) -> tuple[PyTree, OptimizerState]:
        """Returns the parameters and the state after one update; ``hyper_params`` is not read."""
        del hyper_params
        updates, param_states = self.optax_optimizer.update(grads, state.param_states, params)
        return optax.apply_updates(params, updates), OptimizerState(step=state.step + 1, param_states=param_states)

    def derive_logical_axes(self, optimizer: Optimizer, param_logical_axes: PyTree) -> Optimizer:
        """Returns the optimizer with axis names, or None, in place of arrays."""
        axes = jax.tree.map(lambda _: None, optimizer.state_dict())
        axes["target"] = flax.core.unfreeze(param_logical_axes)
        state_axes = OptaxStatePartitionRules.derive_optax_logical_axes(
            optimizer.state.param_states, param_logical_axes
        )
        axes["state"]["param_states"] = flax.core.unfreeze(serialization.to_state_dict(state_axes))
        return optimizer.restore_state(axes)

    def state_dict(self, target: PyTree, state: OptimizerState) -> dict[str, Any]:
        """Returns parameters and state as nested dicts, without the empty branches of ``optax.EmptyState``."""
        tree = super().state_dict(target, state)
        # A checkpoint cannot store an empty branch; restore_state adds them again.
        tree["state"] = traverse_util.unflatten_dict(traverse_util.flatten_dict(tree["state"]))
        return tree

    def restore_state(
        self, opt_target: PyTree, opt_state: OptimizerState, state_dict: Mapping[str, Any]
    ) -> tuple[PyTree, OptimizerState]:
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


def wrap_optax_optimizer(optax_optimizer: Callable[..., optax.GradientTransformation]) -> Callable[..., OptimizerDef]:
    """Wraps a function that makes an optax optimizer, such as ``optax.adamw``, so that it makes an ``OptimizerDef``.

    Its signature is kept, so that gin can bind its arguments.
    """

    @functools.wraps(optax_optimizer)
    def make(*args: Any, **kwargs: Any) -> OptimizerDef:
        return OptaxWrapper(optax_optimizer(*args, **kwargs))

    return make


@wrap_optax_optimizer
def chain(transformations: Sequence[optax.GradientTransformation]) -> optax.GradientTransformation:
    """Chains optax transformations, given as a list because gin has no ``*args``."""
    return optax.chain(*transformations)


adabelief = wrap_optax_optimizer(optax.adabelief)
adagrad = wrap_optax_optimizer(optax.adagrad)
adam = wrap_optax_optimizer(optax.adam)
adamw = wrap_optax_optimizer(optax.adamw)
dpsgd = wrap_optax_optimizer(optax.contrib.dpsgd)
fromage = wrap_optax_optimizer(optax.fromage)
lamb = wrap_optax_optimizer(optax.lamb)
lars = wrap_optax_optimizer(optax.lars)
lion = wrap_optax_optimizer(optax.lion)
noisy_sgd = wrap_optax_optimizer(optax.noisy_sgd)
radam = wrap_optax_optimizer(optax.radam)
rmsprop = wrap_optax_optimizer(optax.rmsprop)
sgd = wrap_optax_optimizer(optax.sgd)
yogi = wrap_optax_optimizer(optax.yogi)


def __getattr__(name: str) -> Callable[..., OptimizerDef]:
    """Makes ``optimizers.amos`` if jestimator, which provides it, is installed."""
    if name != "amos":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        amos = importlib.import_module("jestimator.amos")
        importlib.import_module("jestimator.amos_helper")  # its rule partitions the state
    except ModuleNotFoundError as missing:
        raise AttributeError(f"t5x.optimizers.amos needs the package jestimator ({missing})") from missing
    return wrap_optax_optimizer(amos.amos)


_Path = tuple[str, ...]
_Flat = dict[_Path, Any]


class MultiOptimizer(OptimizerDef):
    """Splits the parameters among optimizers by traversals, ``flax.traverse_util.Traversal``.

    A parameter that no traversal matches does not change, and its state is None. Hyperparameters are a list, one entry
    for each optimizer in order.
    """

    def __init__(self, traversals_and_optimizers: Sequence[tuple[traverse_util.Traversal, OptimizerDef]]):
        self.traversals = tuple(traversal for traversal, _ in traversals_and_optimizers)
        self.sub_optimizers = tuple(optimizer for _, optimizer in traversals_and_optimizers)
        super().__init__([optimizer.hyper_params for optimizer in self.sub_optimizers])

    def init_state(self, params: PyTree) -> OptimizerState:
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
        self, hyper_params: Any, params: PyTree, state: OptimizerState, grads: PyTree
    ) -> tuple[PyTree, OptimizerState]:
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

    def set_param_axes(self, param_logical_axes: PyTree) -> None:
        """Passes the axis names of its parameters to each optimizer that takes them."""
        for i, optimizer in enumerate(self.sub_optimizers):
            if hasattr(optimizer, "set_param_axes"):
                optimizer.set_param_axes(self._select(i, param_logical_axes))

    def derive_logical_axes(self, optimizer: Optimizer, param_logical_axes: PyTree) -> Optimizer:
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

    def _matches(self, index: int, params: PyTree) -> list[_Path]:
        """Returns the paths of the parameters that one traversal matches."""
        paths = {"/".join(path): path for path in _flat(params)}  # a tuple would not be a leaf
        tree = _nest(params, {path: name for name, path in paths.items()})
        return [paths[name] for name in self.traversals[index].iterate(tree)]

    def _refuse_overlaps(self, params: PyTree) -> None:
        owners: dict[_Path, list[int]] = {}
        for index in range(len(self.traversals)):
            for path in self._matches(index, params):
                owners.setdefault(path, []).append(index)
        shared = {"/".join(path): which for path, which in owners.items() if len(which) > 1}
        if shared:
            listing = "; ".join(f"{path} by optimizers {which}" for path, which in sorted(shared.items()))
            raise ValueError(f"Each parameter can have one optimizer only, but these are matched by several: {listing}")

    def _select(self, index: int, params: PyTree, values: PyTree = None) -> Any:
        """Returns the part of ``values`` (by default the parameters) that belongs to one optimizer."""
        leaves = _flat(params) if values is None else _flat(values, stop_at=_flat(params))
        return _nest(params, {path: leaves[path] for path in self._matches(index, params)})

    def _combine(
        self, params: PyTree, parts: Sequence[Any], default: Callable[[_Path], Any] = lambda path: None
    ) -> PyTree:
        """Merges the trees that the optimizers returned for their parameters into one."""
        own_paths = _flat(params)
        leaves = {path: default(path) for path in own_paths}
        for part in parts:
            leaves.update(_flat(part, stop_at=own_paths))
        return _nest(params, leaves)


def _flat(tree: PyTree, stop_at: Mapping[_Path, Any] | None = None) -> _Flat:
    """Flattens nested dicts; with ``stop_at``, the value at a parameter's path is a leaf even if it is a dict."""
    is_leaf = None if stop_at is None else (lambda path, _: path in stop_at)
    return traverse_util.flatten_dict(flax.core.unfreeze(tree), is_leaf=is_leaf)


def _nest(like: PyTree, leaves: Mapping[_Path, Any]) -> PyTree:
    tree = traverse_util.unflatten_dict(leaves)
    return flax.core.freeze(tree) if isinstance(like, flax.core.FrozenDict) else tree
