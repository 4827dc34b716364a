"""Matrix products on the CPU with the precision that a TPU gives them by default.

A TPU rounds the float32 operands of a matrix product to bfloat16, multiplies them and adds in float32, unless the
program asks for a higher precision. Products with a vector are computed elementwise in float32. On the CPU, JAX ignores
the precision. Here the rounding is added to each program when JAX lowers it, so that derivatives, loops and
rematerialized values have it, too. Importing this module does not import JAX.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

_PLATFORM = "cpu"


class JaxLacksRules(RuntimeError):
    """The installed JAX lacks the rules that are replaced; the message names them."""


@dataclasses.dataclass(frozen=True)
class Contractions:
    """Numbers of contractions with float32 operands that were lowered; one in a loop counts once.

    Attributes:
      rounded: at default precision.
      exact: at a precision that the program asks for; these are unchanged.
      of_vectors: with a vector; unchanged, too, as a TPU computes them outside the matrix unit.
    """

    rounded: int = 0
    exact: int = 0
    of_vectors: int = 0

    def since(self, before: Contractions) -> Contractions:
        """Returns the numbers since earlier ones."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(before), strict=True)
        return Contractions(*(now - then for now, then in pairs))


_originals: dict[Any, Callable[..., Any]] = {}
"""JAX's own rules by primitive, while they are replaced."""

_counts = Counter[str]()
"""Numbers of lowered contractions, by field of :class:`Contractions`."""


def lowered() -> Contractions:
    """Returns how many contractions this process has lowered with rounding."""
    return Contractions(**_counts)


def use_tpu_numerics(on: bool) -> None:
    """Switches the rounding of a TPU on or off for programs that are compiled for the CPU from now on.

    Compiled programs are dropped from JAX's caches.

    Args:
      on: whether programs round.

    Raises:
      JaxLacksRules: the installed JAX has its rules elsewhere; nothing was changed.
    """
    if on == bool(_originals):
        return
    import jax
    from jax.interpreters import mlir

    if on:
        lowerings = {jax.lax.dot_general_p: _lower_dot, jax.lax.conv_general_dilated_p: _lower_convolution}
        rules = {primitive: _rule(mlir, primitive) for primitive in lowerings}
        for primitive, rule in rules.items():
            lowering = functools.partial(lowerings[primitive], rule)
            mlir.register_lowering(primitive, lowering, platform=_PLATFORM)
        _originals.update(rules)
    else:
        for primitive, rule in _originals.items():
            mlir.register_lowering(primitive, rule, platform=_PLATFORM)
        _originals.clear()
    jax.clear_caches()


def _rule(mlir: Any, primitive: Any) -> Callable[..., Any]:
    """Returns JAX's rule for lowering a primitive for the CPU."""
    try:
        rule: Callable[..., Any] = mlir._platform_specific_lowerings[_PLATFORM][primitive].rule
    except (AttributeError, KeyError):
        import jax

        raise JaxLacksRules(
            f"--tpu-numerics: JAX {jax.__version__} has no rule for {primitive} where JAX 0.10.2 has it"
        ) from None
    return rule


def _lower_dot(rule: Callable[..., Any], context: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Lowers a dot by JAX's own rule, with rounding unless an operand is a vector."""
    left, right = context.avals_in
    if _is_of_a_vector(left.shape, right.shape, params["dimension_numbers"]):
        _counts["of_vectors"] += _has_float32(context)
    else:
        lhs, rhs = _rounded(context, (lhs, rhs), params["precision"])
    return rule(context, lhs, rhs, **params)


def _lower_convolution(rule: Callable[..., Any], context: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    """Lowers a convolution by JAX's own rule, with rounding, as a TPU computes all in the matrix unit."""
    return rule(context, *_rounded(context, (lhs, rhs), params["precision"]), **params)


def _is_of_a_vector(lhs: Sequence[int], rhs: Sequence[int], dimensions: Any) -> bool:
    """Returns whether an operand has a single row or column, or only one product is summed.

    Args:
      lhs: the shape of the first operand.
      rhs: the shape of the second operand.
      dimensions: the contracted and the batch dimensions, each for both operands.
    """
    (lhs_summed, rhs_summed), (lhs_batch, rhs_batch) = dimensions
    sides = ((lhs, {*lhs_summed, *lhs_batch}), (rhs, {*rhs_summed, *rhs_batch}))
    free = [[size for axis, size in enumerate(shape) if axis not in used] for shape, used in sides]
    return any(all(size == 1 for size in sizes) for sizes in (*free, [lhs[axis] for axis in lhs_summed]))


def _has_float32(context: Any) -> bool:
    return any(aval.dtype == "float32" for aval in context.avals_in)


def _rounded(context: Any, operands: Sequence[Any], precision: Any) -> Sequence[Any]:
    """Rounds the float32 operands if the precision is the default."""
    from jax.extend.mlir.dialects import stablehlo

    if not _has_float32(context):
        return operands
    if not _is_default(precision):
        _counts["exact"] += 1
        return operands
    _counts["rounded"] += 1
    # XLA would remove a conversion to bfloat16 and back.
    return [
        stablehlo.reduce_precision(operand, exponent_bits=8, mantissa_bits=7) if aval.dtype == "float32" else operand
        for operand, aval in zip(operands, context.avals_in, strict=True)
    ]


def _is_default(precision: Any) -> bool:
    """Returns whether a TPU rounds float32 operands to bfloat16, without corrections.

    Args:
      precision: the contraction's precision in JAX: None, one for each operand, or an algorithm for both.
    """
    from jax.lax import DotAlgorithmPreset, Precision

    if isinstance(precision, tuple):
        return all(each in (None, Precision.DEFAULT) for each in precision)
    return precision in (None, Precision.DEFAULT, DotAlgorithmPreset.DEFAULT, DotAlgorithmPreset.BF16_BF16_F32)
