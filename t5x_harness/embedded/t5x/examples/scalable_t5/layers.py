"""The layers of the scalable T5: T5's layers, except that kernels have separate axes for heads and depth.

Such a kernel can be divided over devices by heads, whatever their depth.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from t5x.examples.t5 import layers as t5_layers
from t5x.examples.t5.layers import *  # noqa: F403 (the layers, and the names of their types)
from t5x.examples.t5.layers import Array, DType, PRNGKey, Shape, param_with_axes

InitializerAxis = int | tuple[int, ...]
NdInitializer = Callable[[PRNGKey, Shape, DType, InitializerAxis, InitializerAxis], Array]


def nd_dense_init(scale: float, mode: str, distribution: str) -> NdInitializer:
    """Makes an initializer of kernels with several axes, scaled by the variance of their outputs.

    The arguments are those of ``flax.linen.initializers.variance_scaling``; contracted and output axes are given with
    the shape.
    """

    def init_fn(key: PRNGKey, shape: Shape, dtype: DType, in_axis: InitializerAxis, out_axis: InitializerAxis) -> Array:
        return nn.initializers.variance_scaling(scale, mode, distribution, in_axis, out_axis)(key, shape, dtype)

    return init_fn


class DenseGeneral(t5_layers.DenseGeneral):
    """A linear projection of some axes of the input onto new axes. The kernel has all of these axes.

    It has the shape [*contracted sizes, *features], and ``kernel_axes`` names each axis.
    """

    kernel_init: NdInitializer = nd_dense_init(1.0, "fan_in", "truncated_normal")

    @nn.nowrap
    def _kernel(self, sizes_in: tuple[int, ...], sizes_out: tuple[int, ...]) -> Array:
        shape = sizes_in + sizes_out
        axes = tuple(range(len(shape)))
        in_axis, out_axis = axes[: len(sizes_in)], axes[len(sizes_in) :]
        declared = (self.kernel_init, shape, jnp.float32, in_axis, out_axis)
        return param_with_axes("kernel", *declared, axes=self.kernel_axes).astype(self.dtype)


class MlpBlock(t5_layers.MlpBlock):
    """The feed-forward block, see :class:`t5x.examples.t5.layers.MlpBlock`."""

    kernel_init: NdInitializer = nd_dense_init(1.0, "fan_in", "truncated_normal")

    _projection = DenseGeneral


class MultiHeadDotProductAttention(t5_layers.MultiHeadDotProductAttention):
    """Multi-head attention, see :class:`t5x.examples.t5.layers.MultiHeadDotProductAttention`."""

    kernel_init: NdInitializer = nd_dense_init(1.0, "fan_in", "normal")

    _projection = DenseGeneral
    _input_axes = ("embed", "heads", "kv")
    _output_axes = ("heads", "kv", "embed")
