"""Matrix products on the CPU with the precision that a TPU gives them by default.

A TPU rounds the float32 operands of a contraction to bfloat16, multiplies them and adds in float32, unless the program
asks for a higher precision. On the CPU, JAX ignores what is asked for. Here the rounding is put into each program when
JAX lowers it, so that derivatives, loops and what is computed again have it as well. Importing this imports no JAX.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

_PLATFORM = "cpu"


class JaxLacksRules(RuntimeError):
    """The installed JAX does not have the rules that are replaced; the message says which."""


@dataclasses.dataclass(frozen=True)
class Contractions:
    """How many contractions with float32 operands were lowered; one in a loop counts once.

    Attributes:
      rounded: at default precision.
      exact: at a precision that the program asks for, and so left as they are.
    """

    rounded: int = 0
    exact: int = 0

    def since(self, before: Contractions) -> Contractions:
        """Returns those that came after."""
        return Contractions(self.rounded - before.rounded, self.exact - before.exact)


_originals: dict[Any, Callable[..., Any]] = {}
"""JAX's own rules, by primitive, while others stand in their place."""

_counts = Counter[str]()
"""Of contractions that were lowered, by the field of :class:`Contractions`."""


def lowered() -> Contractions:
    """Returns how many contractions this process has lowered while it rounded."""
    return Contractions(**_counts)


def use_tpu_numerics(on: bool) -> None:
    """Has programs that are compiled for the CPU from now on round as a TPU does, or be exactly JAX's own again.

    What was compiled under the other choice is forgotten.

    Args:
      on: whether they round.

    Raises:
      JaxLacksRules: the installed JAX keeps its rules elsewhere; nothing was changed.
    """
    if on == bool(_originals):
        return
    import jax
    from jax.interpreters import mlir

    if on:
        rules = {each: _rule(mlir, each) for each in (jax.lax.dot_general_p, jax.lax.conv_general_dilated_p)}
        for primitive, rule in rules.items():
            mlir.register_lowering(primitive, functools.partial(_lower, rule), platform=_PLATFORM)
        _originals.update(rules)
    else:
        for primitive, rule in _originals.items():
            mlir.register_lowering(primitive, rule, platform=_PLATFORM)
        _originals.clear()
    jax.clear_caches()


def _rule(mlir: Any, primitive: Any) -> Callable[..., Any]:
    """Returns JAX's rule that lowers a primitive for the CPU."""
    try:
        rule: Callable[..., Any] = mlir._platform_specific_lowerings[_PLATFORM][primitive].rule
    except (AttributeError, KeyError):
        import jax

        raise JaxLacksRules(
            f"--tpu-numerics: JAX {jax.__version__} has no rule for {primitive} where JAX 0.10.2 has it"
        ) from None
    return rule


def _lower(rule: Callable[..., Any], context: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Lowers a contraction by JAX's own rule, with its float32 operands rounded where a TPU rounds them."""
    import numpy as np
    from jax.extend.mlir.dialects import stablehlo

    wide = [aval.dtype == np.float32 for aval in context.avals_in]
    if any(wide) and _is_default(params["precision"]):
        _counts["rounded"] += 1
        # Not a conversion to bfloat16 and back, which XLA takes out.
        lhs, rhs = (
            stablehlo.reduce_precision(operand, exponent_bits=8, mantissa_bits=7) if is_wide else operand
            for operand, is_wide in zip((lhs, rhs), wide, strict=True)
        )
    elif any(wide):
        _counts["exact"] += 1
    return rule(context, lhs, rhs, **params)


def _is_default(precision: Any) -> bool:
    """Returns whether a TPU rounds float32 operands to bfloat16, and once.

    Args:
      precision: of the contraction, as JAX keeps it: None, one for each operand, or an algorithm for both.
    """
    from jax.lax import DotAlgorithmPreset, Precision

    if isinstance(precision, tuple):
        return all(each in (None, Precision.DEFAULT) for each in precision)
    return precision in (None, Precision.DEFAULT, DotAlgorithmPreset.DEFAULT, DotAlgorithmPreset.BF16_BF16_F32)
