"""Adafactor (arXiv:1804.04235) with explicit factoring, the optimizer that T5 models are trained with."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from flax import serialization, traverse_util
from t5x.optimizers import Optimizer, OptimizerDef, OptimizerState, PyTree


class FactorDim(enum.Enum):
    """The role of a parameter's dimension in the factored second moment."""

    NONE = None  # not factored
    BATCH = 1  # stacks independent parameters: nothing is averaged over it
    ROW = 2
    COLUMN = 3


class HeuristicRule(enum.Enum):
    """The rule for parameters without one: factor the two largest dimensions, if they are large enough."""

    token = 1


HEURISTIC_RULE = HeuristicRule.token
Dtype = Any
FactorRule: TypeAlias = HeuristicRule | tuple[FactorDim, ...] | None


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


def factor_name_to_factordim(name: str | FactorDim) -> FactorDim:
    """Converts a name from a gin file to a ``FactorDim``; a ``FactorDim`` is returned unchanged.

    Names are ``row``, ``col``, ``column``, ``batch``, ``none`` or ``unfactorized``, in any case.

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


class HParamMap:
    """Gives each parameter the value of the first rule whose regular expression is found in its path, ``a/b/c``."""

    def __init__(self, rules: Iterable[tuple[str, Any]]):
        self._rules = [(re.compile(pattern), value) for pattern, value in rules]

    def __getitem__(self, key: str) -> Any:
        for pattern, value in self._rules:
            if pattern.search(key):
                return value
        patterns = ", ".join(repr(pattern.pattern) for pattern, _ in self._rules)
        raise KeyError(f"No rule fits parameter {key!r}. Patterns: {patterns or 'none'}")

    def __call__(self, params: PyTree) -> PyTree:
        """Returns a tree like ``params`` with each parameter's value."""
        paths = traverse_util.flatten_dict(serialization.to_state_dict(params))
        values = traverse_util.unflatten_dict({path: self["/".join(path)] for path in paths})
        return serialization.from_state_dict(params, values)


@dataclasses.dataclass(frozen=True)
class _Factoring:
    """How the second moment of one parameter is stored.

    Root mean squares of parameter and update are taken over ``scale_dims``. ``rows`` and ``columns`` are the dimensions
    of the factors, empty when the moment is not factored.
    """

    scale_dims: tuple[int, ...]
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    @property
    def factored(self) -> bool:
        """Whether row and column factors stand in for the full moment."""
        return bool(self.rows or self.columns)


def _plan_factoring(rule: FactorRule, shape: Sequence[int], path: str, min_dim_size: int) -> _Factoring:
    """Decides how the second moment of a parameter is stored.

    For a parameter of rank 2 or less without a batch dimension, the rule is ignored and the heuristic decides, which
    factors only if both dimensions have at least ``min_dim_size``.
    """
    every_dim = tuple(range(len(shape)))
    if rule is None:
        return _Factoring(every_dim)
    if isinstance(rule, tuple):
        if len(rule) != len(shape):
            raise ValueError(
                f"Parameter {path} has shape {tuple(shape)}, rank {len(shape)}, but its factor rule {rule} has "
                f"{len(rule)} dimensions"
            )
        if len(shape) > 2 or FactorDim.BATCH in rule:
            rows, columns = (tuple(i for i in every_dim if rule[i] is dim) for dim in (FactorDim.ROW, FactorDim.COLUMN))
            return _Factoring(tuple(i for i in every_dim if rule[i] is not FactorDim.BATCH), rows, columns)
        logging.warning("%s: rank %d, so its factor rule %s gives way to the heuristic", path, len(shape), rule)
    if len(shape) > 2:
        raise ValueError(
            f"Parameter {path} has shape {tuple(shape)}: a rank above 2 needs a factor rule. "
            "Set Adafactor.logical_factor_rules or factor_map, or factored=False"
        )
    by_size = [int(i) for i in np.argsort(shape)]
    if len(shape) < 2 or shape[by_size[-2]] < min_dim_size:
        return _Factoring(every_dim)
    return _Factoring(every_dim, rows=(by_size[-2],), columns=(by_size[-1],))


def _rule_from_axes(axes: Sequence[str], rules: Mapping[str, str | FactorDim], path: str) -> tuple[FactorDim, ...]:
    """Converts a parameter's axis names to its factor rule; without both row and column, only batch dimensions stay."""
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


@flax.struct.dataclass
class _AdafactorHyperParams:
    """The constructor's arguments that may change from step to step."""

    learning_rate: jax.Array | float | None
    factored: bool
    multiply_by_parameter_scale: bool | HParamMap
    beta1: float | None
    decay_rate: float
    step_offset: int
    clipping_threshold: float | None
    weight_decay_rate: float | None
    min_dim_size_to_factor: int
    epsilon1: float
    epsilon2: float
    factor_map: HParamMap | Mapping[str, FactorRule] | None = None
    logical_factor_rules: Mapping[str, str | FactorDim] | None = None
    weight_decay_rate_lr_exponent: float | None = None
    global_norm_clip_threshold: float | None = None
    max_parameter_scale: float | None = None
    skip_nan_updates: bool | None = False


@flax.struct.dataclass
class _AdafactorParamState:
    """The state of one parameter: either ``v`` or both factors, and ``m``; unused arrays are ``zeros((1,))``.

    ``v_row`` and ``v_col`` are the second moment over the columns and over the rows, ``v`` is the full one, ``m`` the
    first.
    """

    v_row: Any  # arrays, or leaves of another kind in a state of axis names
    v_col: Any
    v: Any
    m: Any


def _precondition(
    hp: _AdafactorHyperParams,
    factoring: _Factoring,
    state: _AdafactorParamState,
    grad: jax.Array,
    step: jax.Array | int,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Divides a gradient by the root of its second moment; returns it with the new moments by name.

    The factored moment is ``row * column / mean(row)``, the rank-one matrix of Shazeer and Stern 2018, section 3.
    """
    unused = jnp.zeros((1,))
    keep = 1.0 - (jnp.array(step - hp.step_offset, jnp.float32) + 1.0) ** (-hp.decay_rate)
    squared = jnp.square(grad) + hp.epsilon1  # of the parameter's shape, [..., rows, ..., columns, ...]
    if not factoring.factored:
        moment = keep * state.v + (1.0 - keep) * squared
        return grad * moment**-0.5, {"v_row": unused, "v_col": unused, "v": moment}
    row = keep * state.v_row + (1.0 - keep) * jnp.mean(squared, axis=factoring.columns)  # [..., rows, ...]
    column = keep * state.v_col + (1.0 - keep) * jnp.mean(squared, axis=factoring.rows)  # [..., columns, ...]
    # Expanded last, as in T5X: the partitioner would divide other arrays differently and change the order of sums.
    rows = tuple(dim - sum(other < dim for other in factoring.columns) for dim in factoring.rows)
    row_factor = (row / jnp.mean(row, axis=rows, keepdims=True)) ** -0.5
    direction = grad * jnp.expand_dims(row_factor, factoring.columns) * jnp.expand_dims(column**-0.5, factoring.rows)
    return direction, {"v_row": row, "v_col": column, "v": unused}


def _step_size(hp: _AdafactorHyperParams, param: jax.Array, factoring: _Factoring, path: str) -> jax.Array:
    """Returns the learning rate, multiplied by the parameter's scale if that is requested."""
    by_scale = hp.multiply_by_parameter_scale
    if not (by_scale[path] if isinstance(by_scale, HParamMap) else by_scale):
        return hp.learning_rate
    return hp.learning_rate * jnp.clip(_rms(param, factoring.scale_dims), hp.epsilon2, hp.max_parameter_scale)


def _weight_decay(hp: _AdafactorHyperParams) -> jax.Array | float | None:
    """Returns the fraction of the parameter to subtract, or None."""
    if not hp.weight_decay_rate_lr_exponent:
        return hp.weight_decay_rate
    return (hp.weight_decay_rate or 1.0) * hp.learning_rate**hp.weight_decay_rate_lr_exponent


def _rms(x: jax.Array, dims: tuple[int, ...]) -> jax.Array:
    """Returns the root mean square over some dimensions, which stay with size 1."""
    return jnp.sqrt(jnp.mean(jnp.square(x), axis=dims, keepdims=True))


class Adafactor(OptimizerDef):
    """Adafactor.

    Args:
        learning_rate: step size; usually given at each step instead. Relative to the parameter's scale when
            ``multiply_by_parameter_scale`` is set.
        factored: keep row and column factors of the second moment where a parameter allows it.
        multiply_by_parameter_scale: scale the step by the root mean square of the parameter; may differ by path.
        beta1: decay of the first moment; None keeps none and saves its memory.
        decay_rate: exponent of the second moment's decay, ``1 - (step - step_offset + 1) ** -decay_rate``.
        step_offset: the step that counts as the first, to restart the decay when fine-tuning.
        clipping_threshold: the largest root mean square of an update; None for no limit.
        weight_decay_rate: the fraction of the parameter that each step subtracts.
        min_dim_size_to_factor: parameters without a rule are factored if two dimensions have at least this size.
        epsilon1: added to the squared gradient.
        epsilon2: the smallest parameter scale.
        dtype_momentum: dtype of the first moment.
        factor_map: factor rules by path.
        logical_factor_rules: factor dimensions by axis name; when the model gives axis names, these replace
            ``factor_map``.
        weight_decay_rate_lr_exponent: makes the decay rate ``learning_rate ** this``, times ``weight_decay_rate``.
        global_norm_clip_threshold: the largest norm of all gradients together; None for no limit.
        max_parameter_scale: the largest parameter scale; None for no limit.
        skip_nan_updates: keep the old value of every element that would become NaN.

    Raises:
        ValueError: factor rules are given together with ``factored=False``.
        TypeError: ``factor_map`` or ``multiply_by_parameter_scale`` has another type.
    """

    def __init__(
        self,
        learning_rate: float | None = None,
        factored: bool = True,
        multiply_by_parameter_scale: bool | HParamMap = True,
        beta1: float | None = None,
        decay_rate: float = 0.8,
        step_offset: int = 0,
        clipping_threshold: float | None = 1.0,
        weight_decay_rate: float | None = None,
        min_dim_size_to_factor: int = 128,
        epsilon1: float = 1e-30,
        epsilon2: float = 1e-3,
        dtype_momentum: Any = jnp.float32,
        factor_map: HParamMap | None = None,
        logical_factor_rules: Mapping[str, str | FactorDim] | None = None,
        weight_decay_rate_lr_exponent: float | None = None,
        global_norm_clip_threshold: float | None = None,
        max_parameter_scale: float | None = None,
        skip_nan_updates: bool | None = False,
    ):
        if factor_map is not None and not factored:
            raise ValueError("Adafactor got a factor_map and factored=False; leave one of them out")
        if not isinstance(multiply_by_parameter_scale, bool | HParamMap):
            raise TypeError(
                "Adafactor.multiply_by_parameter_scale must be a bool or an HParamMap, not "
                f"{type(multiply_by_parameter_scale).__name__}"
            )
        if factor_map is not None and not isinstance(factor_map, HParamMap):
            raise TypeError(f"Adafactor.factor_map must be an HParamMap, not {type(factor_map).__name__}")
        self.dtype_momentum = jax.dtypes.canonicalize_dtype(dtype_momentum)
        super().__init__(
            _AdafactorHyperParams(
                learning_rate=learning_rate,
                factored=factored,
                multiply_by_parameter_scale=multiply_by_parameter_scale,
                beta1=beta1,
                decay_rate=decay_rate,
                step_offset=step_offset,
                clipping_threshold=clipping_threshold,
                weight_decay_rate=weight_decay_rate,
                min_dim_size_to_factor=min_dim_size_to_factor,
                epsilon1=epsilon1,
                epsilon2=epsilon2,
                factor_map=factor_map,
                logical_factor_rules=logical_factor_rules,
                weight_decay_rate_lr_exponent=weight_decay_rate_lr_exponent,
                global_norm_clip_threshold=global_norm_clip_threshold,
                max_parameter_scale=max_parameter_scale,
                skip_nan_updates=skip_nan_updates,
            )
        )

    # Two states made from equal definitions must count as one tree structure, or jax refuses to combine them.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Adafactor):
            return NotImplemented
        return (self.hyper_params, self.dtype_momentum) == (other.hyper_params, other.dtype_momentum)

    def __hash__(self) -> int:
        return hash((type(self), self.dtype_momentum))

    def init_param_state(self, param: jax.Array, path: str) -> _AdafactorParamState:
        """Returns the state at step 0 of one parameter, an array or anything with a shape."""
        factoring = self._factoring(param.shape, path)
        unused = jnp.zeros((1,))
        if factoring.factored:
            second = {
                "v_row": jnp.zeros(np.delete(param.shape, factoring.columns), jnp.float32),
                "v_col": jnp.zeros(np.delete(param.shape, factoring.rows), jnp.float32),
                "v": unused,
            }
        else:
            second = {"v_row": unused, "v_col": unused, "v": jnp.zeros(param.shape, jnp.float32)}
        has_momentum = self.hyper_params.beta1 is not None
        return _AdafactorParamState(m=jnp.zeros(param.shape, self.dtype_momentum) if has_momentum else unused, **second)

    def init_state(self, params: PyTree) -> OptimizerState:
        """Returns the state at step 0 for a nested dict of parameters."""
        states = {path: self.init_param_state(param, path) for path, param in _by_path(params).items()}
        return OptimizerState(step=jnp.asarray(0, jnp.int32), param_states=_nested(params, states))

    def apply_gradient(
        self, hyper_params: _AdafactorHyperParams, params: PyTree, state: OptimizerState, grads: PyTree
    ) -> tuple[PyTree, OptimizerState]:
        """Returns the parameters and the state after one update with the hyperparameters of this step.

        Raises:
            ValueError: no learning rate is set.
        """
        gradients = _by_path(grads)
        if hyper_params.global_norm_clip_threshold:
            shrink = jnp.minimum(1.0, hyper_params.global_norm_clip_threshold / optax.tree.norm(gradients))
            gradients = {path: grad * shrink for path, grad in gradients.items()}
        states = _by_path(state.param_states)
        updated = {
            path: self.apply_param_gradient(state.step, hyper_params, param, states[path], gradients[path], path)
            for path, param in _by_path(params).items()
        }
        new_params = {path: param for path, (param, _) in updated.items()}
        new_states = {path: param_state for path, (_, param_state) in updated.items()}
        return _nested(params, new_params), OptimizerState(
            step=state.step + 1, param_states=_nested(params, new_states)
        )

    def apply_param_gradient(
        self,
        step: jax.Array | int,
        hyper_params: _AdafactorHyperParams,
        param: jax.Array,
        state: _AdafactorParamState,
        grad: jax.Array,
        path: str,
    ) -> tuple[jax.Array, _AdafactorParamState]:
        """Returns one parameter and its state after an update; the arguments are as in ``apply_gradient``."""
        hp = hyper_params
        if hp.learning_rate is None:
            raise ValueError(
                "Adafactor has no learning rate: pass learning_rate to apply_gradient or set Adafactor.learning_rate"
            )
        factoring = self._factoring(param.shape, path)
        direction, second = _precondition(hp, factoring, state, grad.astype(jnp.float32), step)
        if hp.clipping_threshold is not None:
            direction /= jnp.maximum(1.0, _rms(direction, factoring.scale_dims) / hp.clipping_threshold)

        change = _step_size(hp, param, factoring, path) * direction
        momentum = jnp.zeros((1,))
        if hp.beta1 is not None:
            change = hp.beta1 * state.m + (1.0 - hp.beta1) * change
            momentum = change.astype(self.dtype_momentum)
        new_state = _AdafactorParamState(m=momentum, **second)

        decay = _weight_decay(hp)
        new_param = (param if decay is None else (1.0 - decay) * param) - change
        if hp.skip_nan_updates:
            new_param, new_state = jax.tree.map(
                lambda new, old: jnp.where(jnp.isnan(new), old, new), (new_param, new_state), (param, state)
            )
        return new_param.astype(param.dtype), new_state

    def set_param_axes(self, param_logical_axes: PyTree) -> None:
        """Takes the factor rules from the model's axis names, if ``logical_factor_rules`` are set.

        Raises:
            KeyError: an axis name has no factor dimension.
            ValueError: a parameter has rows, columns and axes that are neither.
        """
        rules = self.hyper_params.logical_factor_rules
        if rules is None:
            return
        factor_map = {path: _rule_from_axes(axes, rules, path) for path, axes in _by_path(param_logical_axes).items()}
        self.hyper_params = self.hyper_params.replace(factor_map=factor_map)

    def derive_logical_axes(self, optimizer_state: Optimizer, param_logical_axes: PyTree) -> Optimizer:
        """Returns the optimizer with axis names, or None, in place of arrays.

        Moments with the shape of the parameter have its axes; row and column factors are replicated.
        """
        axes_by_path = _by_path(param_logical_axes)
        with_momentum = bool(self.hyper_params.beta1)
        states = {
            path: _AdafactorParamState(
                v_row=None,
                v_col=None,
                v=axes_by_path[path] if param_state.v.shape != (1,) else None,
                m=axes_by_path[path] if with_momentum else None,
            )
            for path, param_state in _by_path(optimizer_state.state.param_states).items()
        }
        return optimizer_state.replace(
            state=OptimizerState(step=None, param_states=_nested(optimizer_state.target, states)),
            target=_nested(optimizer_state.target, {path: axes_by_path[path] for path in states}),
        )

    def _factoring(self, shape: tuple[int, ...], path: str) -> _Factoring:
        hp = self.hyper_params
        rule: FactorRule = None
        if hp.factored:
            rule = hp.factor_map[path] if hp.factor_map else HEURISTIC_RULE
        return _plan_factoring(rule, shape, path, hp.min_dim_size_to_factor)


def _by_path(tree: PyTree) -> dict[str, Any]:
    return traverse_util.flatten_dict(flax.core.unfreeze(tree), sep="/")


def _nested(like: PyTree, by_path: Mapping[str, Any]) -> PyTree:
    tree = traverse_util.unflatten_dict(dict(by_path), sep="/")
    return flax.core.freeze(tree) if isinstance(like, flax.core.FrozenDict) else tree
