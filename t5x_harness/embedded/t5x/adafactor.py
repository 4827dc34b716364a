"""Adafactor (arXiv:1804.04235) with explicit factoring, the optimizer that T5 models are trained with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import optax
from flax import traverse_util
from t5x._optimizers.adafactor_update import (
    AdafactorHyperParams,
    AdafactorParamState,
    precondition,
    rms,
    step_size,
    unless_nan,
    weight_decay,
)
from t5x._optimizers.factoring import (
    HEURISTIC_RULE,
    FactorDim,
    Factoring,
    FactorRule,
    HeuristicRule,
    HParamMap,
    factor_name_to_factordim,
    plan_factoring,
    rule_from_axes,
    standard_logical_factor_rules,
)
from t5x.optimizers import Optimizer, OptimizerDef, OptimizerState

__all__ = [
    "HEURISTIC_RULE",
    "Adafactor",
    "FactorDim",
    "FactorRule",
    "HParamMap",
    "HeuristicRule",
    "factor_name_to_factordim",
    "standard_logical_factor_rules",
]


class Adafactor(OptimizerDef):
    """Adafactor.

    Args:
        learning_rate: step size; usually given at each step instead. Relative to the parameter's scale when
            ``multiply_by_parameter_scale`` is set.
        factored: keep row and column factors of the second moment where a parameter allows it.
        multiply_by_parameter_scale: scale the step by the root mean square of the parameter; may differ by path.
        beta1: decay of the first moment; None keeps none and saves its memory.
        decay_rate: exponent of the second moment's decay, ``1 - (step - step_offset + 1) ** -decay_rate``.
        step_offset: the step that counts as the first, to begin the decay anew when fine-tuning.
        clipping_threshold: the largest root mean square of an update; None for no limit.
        weight_decay_rate: fraction of the parameter that each step takes away.
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
        ValueError: factor rules together with ``factored=False``.
        TypeError: ``factor_map`` or ``multiply_by_parameter_scale`` of another type.
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
            AdafactorHyperParams(
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

    def init_param_state(self, param: Any, path: str) -> AdafactorParamState:
        """Returns the state of one parameter at step 0.

        Args:
            param: an array or anything with a shape.
            path: the parameter's names joined with ``/``.
        """
        factoring = self._factoring(param.shape, path)
        unused = jnp.zeros((1,))
        if factoring.factored:
            second = {
                "v_row": jnp.zeros(factoring.row_shape(param.shape), jnp.float32),
                "v_col": jnp.zeros(factoring.column_shape(param.shape), jnp.float32),
                "v": unused,
            }
        else:
            second = {"v_row": unused, "v_col": unused, "v": jnp.zeros(param.shape, jnp.float32)}
        has_momentum = self.hyper_params.beta1 is not None
        return AdafactorParamState(m=jnp.zeros(param.shape, self.dtype_momentum) if has_momentum else unused, **second)

    def init_state(self, params: Any) -> OptimizerState:
        """Returns the state at step 0 for a nested dict of parameters."""
        states = {path: self.init_param_state(param, path) for path, param in _by_path(params).items()}
        return OptimizerState(step=jnp.asarray(0, jnp.int32), param_states=_nested(params, states))

    def apply_gradient(
        self, hyper_params: Any, params: Any, state: OptimizerState, grads: Any
    ) -> tuple[Any, OptimizerState]:
        """Returns the parameters and the state after one update.

        Args:
            hyper_params: the hyperparameters of this step, from :meth:`update_hyper_params`.
            params: nested dict of parameters.
            state: the state before.
            grads: gradients, a tree like ``params``.

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
        self, step: Any, hyper_params: Any, param: Any, state: AdafactorParamState, grad: Any, path: str
    ) -> tuple[jax.Array, AdafactorParamState]:
        """Returns one parameter and its state after an update; the arguments are as in :meth:`apply_gradient`."""
        hp = hyper_params
        if hp.learning_rate is None:
            raise ValueError(
                "Adafactor has no learning rate: pass learning_rate to apply_gradient or set Adafactor.learning_rate"
            )
        factoring = self._factoring(param.shape, path)
        direction, second = precondition(hp, factoring, state, grad.astype(jnp.float32), step)
        if hp.clipping_threshold is not None:
            direction /= jnp.maximum(1.0, rms(direction, factoring.scale_dims) / hp.clipping_threshold)

        change = step_size(hp, param, factoring, path) * direction
        momentum = jnp.zeros((1,))
        if hp.beta1 is not None:
            change = hp.beta1 * state.m + (1.0 - hp.beta1) * change
            momentum = change.astype(self.dtype_momentum)
        new_state = AdafactorParamState(m=momentum, **second)

        decay = weight_decay(hp)
        new_param = (param if decay is None else (1.0 - decay) * param) - change
        if hp.skip_nan_updates:
            new_param, new_state = jax.tree.map(unless_nan, (new_param, new_state), (param, state))
        return new_param.astype(param.dtype), new_state

    def set_param_axes(self, param_logical_axes: Any) -> None:
        """Takes the factor rules from the model's axis names, if ``logical_factor_rules`` are set.

        Args:
            param_logical_axes: a tree like the parameters, with axis names as leaves.

        Raises:
            KeyError: an axis name has no factor dimension.
            ValueError: a parameter has rows, columns and axes that are neither.
        """
        rules = self.hyper_params.logical_factor_rules
        if rules is None:
            return
        factor_map = {path: rule_from_axes(axes, rules, path) for path, axes in _by_path(param_logical_axes).items()}
        self.hyper_params = self.hyper_params.replace(factor_map=factor_map)

    def derive_logical_axes(self, optimizer_state: Optimizer, param_logical_axes: Any) -> Optimizer:
        """Returns the optimizer with axis names, or None, in place of arrays.

        Moments with the shape of the parameter have its axes; row and column factors are replicated.
        """
        axes_by_path = _by_path(param_logical_axes)
        with_momentum = bool(self.hyper_params.beta1)
        states = {
            path: AdafactorParamState(
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

    def _factoring(self, shape: tuple[int, ...], path: str) -> Factoring:
        hp = self.hyper_params
        rule: FactorRule = None
        if hp.factored:
            rule = hp.factor_map[path] if hp.factor_map else HEURISTIC_RULE
        return plan_factoring(rule, shape, path, hp.min_dim_size_to_factor)


def _by_path(tree: Any) -> dict[str, Any]:
    return traverse_util.flatten_dict(flax.core.unfreeze(tree), sep="/")


def _nested(like: Any, by_path: Mapping[str, Any]) -> Any:
    tree = traverse_util.unflatten_dict(dict(by_path), sep="/")
    return flax.core.freeze(tree) if isinstance(like, flax.core.FrozenDict) else tree
