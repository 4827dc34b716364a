"""Linear projections, the feed-forward block and the norm. None of them has biases."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from t5x.examples.t5._types import Array, DType, Initializer, param_with_axes, with_sharding_constraint


def _as_tuple(value: int | Iterable[int]) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, Iterable) else (value,)


class DenseGeneral(nn.Module):
    """A linear projection of some axes of the input onto new ones.

    The kernel is stored as a matrix, whatever the number of axes, so that its initial values have the right scale.

    Attributes:
      features: Sizes of the new axes, which come last.
      axis: The axes that are contracted.
      dtype: In what to compute; the kernel is float32.
      kernel_init: Initialises the kernel of shape [product of contracted sizes, product of features].
      kernel_axes: Logical names of the kernel's two axes.
    """

    features: Iterable[int] | int
    axis: Iterable[int] | int = -1
    dtype: DType = jnp.float32
    kernel_init: Initializer = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
    kernel_axes: tuple[str, ...] = ()

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """Projects float[..., contracted axes] to float[..., *features]."""
        inputs = jnp.asarray(inputs, self.dtype)
        contracted = tuple(axis % inputs.ndim for axis in _as_tuple(self.axis))
        sizes_in = tuple(inputs.shape[axis] for axis in contracted)
        sizes_out = _as_tuple(self.features)
        matrix_shape = (math.prod(sizes_in), math.prod(sizes_out))
        kernel = param_with_axes("kernel", self.kernel_init, matrix_shape, jnp.float32, axes=self.kernel_axes)
        kernel = kernel.astype(self.dtype).reshape(sizes_in + sizes_out)
        return jnp.tensordot(inputs, kernel, axes=(contracted, tuple(range(len(contracted)))))


def _activation_fn(activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Finds an activation by its name in `flax.linen`; "linear" is the identity.

    Raises:
      ValueError: There is no such name, or it's neither a name nor a function.
    """
    if activation == "linear":
        return lambda x: x
    found = getattr(nn, activation, None) if isinstance(activation, str) else activation
    if not callable(found):
        raise ValueError(
            f"{activation!r} is not an activation: give a function, 'linear', or the name of one in flax.linen such as "
            "'relu' or 'gelu'"
        )
    return found


class MlpBlock(nn.Module):
    """The feed-forward block. With more than one activation, their outputs are multiplied (gated units).

    Attributes:
      intermediate_dim: Size of the hidden layer.
      activations: Names in `flax.linen`, "linear", or functions.
      kernel_init: Initialises all kernels.
      intermediate_dropout_rate: Dropout of the hidden layer, the same for all positions.
      dtype: In what to compute.
    """

    intermediate_dim: int = 2048
    activations: Sequence[str | Callable[[Array], Array]] = ("relu",)
    kernel_init: Initializer = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
    intermediate_dropout_rate: float = 0.1
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs: Array, decode: bool = False, deterministic: bool = False) -> Array:
        """Transforms every position by itself.

        Args:
          inputs: float[batch, length, features].
          decode: Part of the interface that all blocks share; decoding changes nothing here.
          deterministic: Turns dropout off.

        Returns:
          float[batch, length, features].
        """
        del decode
        dense = functools.partial(DenseGeneral, dtype=self.dtype, kernel_init=self.kernel_init)
        names = ["wi"] if len(self.activations) == 1 else [f"wi_{i}" for i in range(len(self.activations))]
        branches = [
            _activation_fn(activation)(
                dense(self.intermediate_dim, kernel_axes=("embed", "mlp"), name=name)(inputs),
            )
            for name, activation in zip(names, self.activations, strict=True)
        ]
        hidden = functools.reduce(operator.mul, branches)
        hidden = nn.Dropout(self.intermediate_dropout_rate, broadcast_dims=(-2,))(hidden, deterministic=deterministic)
        hidden = with_sharding_constraint(hidden, ("batch", "length", "mlp"))
        return dense(inputs.shape[-1], kernel_axes=("mlp", "embed"), name="wo")(hidden)


class LayerNorm(nn.Module):
    """Root-mean-square norm: no mean is taken off, and there is a scale but no bias.

    Attributes:
      epsilon: Added to the mean square.
      dtype: Of the result; the mean square is computed in float32.
      scale_init: Initialises the scale.
    """

    epsilon: float = 1e-6
    dtype: Any = jnp.float32
    scale_init: Initializer = nn.initializers.ones

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalises float[..., features] over its last axis."""
        x = jnp.asarray(x, jnp.float32)
        scale = param_with_axes("scale", self.scale_init, (x.shape[-1],), jnp.float32, axes=("embed",))
        inverse_rms = lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.epsilon)
        return (x * inverse_rms).astype(self.dtype) * scale.astype(self.dtype)
