"""Which axes the arrays in an optax state are partitioned along."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import optax
from t5x._shown_as import shown_as


class _Fields(NamedTuple):
    """The fields of an optax state that hold something per parameter; all others are replicated."""

    like_params: tuple[str, ...] = ()
    like_params_whole: tuple[str, ...] = ()  # never masked
    states: tuple[str, ...] = ()


# A state type that is missing here is refused, and not guessed: a state with factored arrays would get axes of another
# rank. T5X knows these types and refuses the others too.
_KNOWN_STATES: dict[type, _Fields] = {
    optax.AddNoiseState: _Fields(),
    optax.contrib.DifferentiallyPrivateAggregateState: _Fields(),
    optax.EmptyState: _Fields(),
    optax.ScaleByScheduleState: _Fields(),
    optax.ScaleByTrustRatioState: _Fields(),
    optax.ZeroNansState: _Fields(),
    optax.EmaState: _Fields(("ema",)),
    optax.TraceState: _Fields(("trace",)),
    optax.ScaleByAdamState: _Fields(("mu", "nu")),
    optax.ScaleByBeliefState: _Fields(("mu", "nu")),
    optax.ScaleByLionState: _Fields(("mu",)),
    optax.ScaleByRssState: _Fields(("sum_of_squares",)),
    optax.ScaleByRmsState: _Fields(("nu",)),
    optax.ScaleByRStdDevState: _Fields(("mu", "nu")),
    optax.ScaleBySM3State: _Fields(("mu", "nu")),
    optax.MaskedState: _Fields(states=("inner_state",)),
    optax.InjectHyperparamsState: _Fields(states=("inner_state",)),
    optax.MultiStepsState: _Fields(like_params_whole=("acc_grads",), states=("inner_opt_state",)),
    optax.ApplyIfFiniteState: _Fields(states=("inner_state",)),
    optax.ConditionallyTransformState: _Fields(states=("inner_state",)),
    optax.MultiTransformState: _Fields(states=("inner_states",)),
}


def _rule(fields: _Fields) -> Callable[[Any, Any], Any]:
    def axes_of(state: Any, params_axes: Any) -> Any:
        axes = {}
        for name, value in state._asdict().items():
            if name in fields.like_params:
                axes[name] = OptaxStatePartitionRules.derive_params_axes(value, params_axes)
            elif name in fields.like_params_whole:
                axes[name] = params_axes
            elif name in fields.states:
                axes[name] = OptaxStatePartitionRules.derive_optax_logical_axes(value, params_axes)
            else:
                axes[name] = jax.tree.map(lambda _: None, value)
        return type(state)(**axes)

    return axes_of


@shown_as("t5x.optimizers")
class OptaxStatePartitionRules:
    """Gives every array of an optax state the axis names of its parameter, or None.

    ``_RULES`` maps a state type to a function of the state and the parameters' axes, so that a project can add the
    states of its own transformations.
    """

    _RULES: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {
        kind: _rule(fields) for kind, fields in _KNOWN_STATES.items()
    }

    @classmethod
    def derive_optax_logical_axes(cls, optax_state: Any, params_axes: Any) -> Any:
        """Returns a tree like an optax state with axis names, or None, for arrays.

        Args:
            optax_state: a state or any tree of states.
            params_axes: axis names of the parameters.

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
    def derive_params_axes(cls, optax_params: Any, params_axes: Any) -> Any:
        """Returns the parameters' axis names, with ``MaskedNode`` where a mask left a parameter out."""
        return jax.tree.map(
            lambda axes, value: value if isinstance(value, optax.MaskedNode) else axes, params_axes, optax_params
        )

    @classmethod
    def _rule_for(cls, kind: type) -> Callable[[Any, Any], Any] | None:
        if kind in cls._RULES:
            return cls._RULES[kind]
        # jestimator is not a requirement; its states can only be met where it was imported.
        amos, helper = (sys.modules.get(f"jestimator.{name}") for name in ("amos", "amos_helper"))
        if amos is not None and helper is not None and kind is amos.ScaleByAmosState:
            rule: Callable[[Any, Any], Any] = helper.state_partition_rule
            return rule
        return None


def _is_optax_state(node: Any) -> bool:
    """Optax has no base class for states: they are named tuples whose names end in State."""
    return isinstance(node, tuple) and hasattr(node, "_fields") and type(node).__name__.endswith("State")
