"""Optimizers: T5X's interface to them, wrapped optax optimizers, and several optimizers for one model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optax
from t5x._optimizers.base import Optimizer, OptimizerDef, OptimizerState
from t5x._optimizers.multi import MultiOptimizer
from t5x._optimizers.optax_axes import OptaxStatePartitionRules
from t5x._optimizers.wrapped import OptaxWrapper, wrap_optax_optimizer

OptimizerType = Optimizer
OptimizerDefType = OptimizerDef
OptimizerStateType = OptimizerState | Mapping[str, Any]


@wrap_optax_optimizer
def chain(transformations: Sequence[optax.GradientTransformation]) -> optax.GradientTransformation:
    """Applies optax transformations one after another; a list, because gin has no ``*args``."""
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

__all__ = [
    "MultiOptimizer",
    "OptaxStatePartitionRules",
    "OptaxWrapper",
    "Optimizer",
    "OptimizerDef",
    "OptimizerDefType",
    "OptimizerState",
    "OptimizerStateType",
    "OptimizerType",
    "adabelief",
    "adagrad",
    "adam",
    "adamw",
    "chain",
    "dpsgd",
    "fromage",
    "lamb",
    "lars",
    "lion",
    "noisy_sgd",
    "radam",
    "rmsprop",
    "sgd",
    "wrap_optax_optimizer",
    "yogi",
]


def __getattr__(name: str) -> Callable[..., OptimizerDef]:
    """Makes ``optimizers.amos`` where jestimator, which brings it, is installed."""
    if name != "amos":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        amos = importlib.import_module("jestimator.amos")
        importlib.import_module("jestimator.amos_helper")  # its rule partitions the state
    except ModuleNotFoundError as missing:
        raise AttributeError(f"t5x.optimizers.amos needs the package jestimator ({missing})") from missing
    return wrap_optax_optimizer(amos.amos)
