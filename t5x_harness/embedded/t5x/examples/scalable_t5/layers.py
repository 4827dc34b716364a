"""The layers of a T5 that scales: those of T5, but for kernels with an axis each for heads and depth.

Such a kernel can be divided over devices by heads whatever their depth is.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from t5x.examples.t5 import layers as t5_layers
from t5x.examples.t5.layers import (
    Activation,
    Array,
    DType,
    Embed,
    Initializer,
    LayerNorm,
    PRNGKey,
    RelativePositionBiases,
    Shape,
    combine_biases,
    combine_masks,
    default_embed_init,
    dot_product_attention,
    make_attention_mask,
    make_causal_mask,
    make_decoder_mask,
    param_with_axes,
    with_sharding_constraint,
)

__all__ = [
    "Activation",
    "Array",
    "DType",
    "DenseGeneral",
    "Embed",
    "Initializer",
    "InitializerAxis",
    "LayerNorm",
    "MlpBlock",
    "MultiHeadDotProductAttention",
    "NdInitializer",
    "PRNGKey",
    "RelativePositionBiases",
    "Shape",
    "combine_biases",
    "combine_masks",
    "default_embed_init",
    "dot_product_attention",
    "make_attention_mask",
    "make_causal_mask",
    "make_decoder_mask",
    "nd_dense_init",
    "param_with_axes",
    "with_sharding_constraint",
]

InitializerAxis = int | tuple[int, ...]
NdInitializer = Callable[[PRNGKey, Shape, DType, InitializerAxis, InitializerAxis], Array]


def nd_dense_init(scale: float, mode: str, distribution: str) -> NdInitializer:
    """Makes an initializer of kernels with several axes, by the variance of what they give.

    Args:
        scale: of the variance.
        mode: what the variance is divided by: "fan_in", "fan_out" or "fan_avg".
        distribution: "normal", "truncated_normal" or "uniform".

    Returns:
        A function of a key, a shape, a dtype, the axes that are contracted, and those of the output.
    """

    def init_fn(key: PRNGKey, shape: Shape, dtype: DType, in_axis: InitializerAxis, out_axis: InitializerAxis) -> Array:
        return nn.initializers.variance_scaling(scale, mode, distribution, in_axis, out_axis)(key, shape, dtype)

    return init_fn


class DenseGeneral(t5_layers.DenseGeneral):
    """A linear projection of some axes of the input onto new ones. The kernel has all of these axes.

    Attributes:
        kernel_init: initializes the kernel of shape [*contracted sizes, *features].
        kernel_axes: logical names of the kernel's axes.
    """

    kernel_init: NdInitializer = nd_dense_init(1.0, "fan_in", "truncated_normal")

    @nn.nowrap
    def _kernel(self, sizes_in: tuple[int, ...], sizes_out: tuple[int, ...]) -> Array:
        shape = sizes_in + sizes_out
        axes = tuple(range(len(shape)))
        in_axis, out_axis = axes[: len(sizes_in)], axes[len(sizes_in) :]
        return param_with_axes("kernel", self.kernel_init, shape, jnp.float32, in_axis, out_axis, axes=self.kernel_axes)


class MlpBlock(t5_layers.MlpBlock):
    """The feed-forward block, see :class:`t5x.examples.t5.layers.MlpBlock`."""

    kernel_init: NdInitializer = nd_dense_init(1.0, "fan_in", "truncated_normal")

    _projection = DenseGeneral


class MultiHeadDotProductAttention(t5_layers.MultiHeadDotProductAttention):
    """Attention of several heads, see :class:`t5x.examples.t5.layers.MultiHeadDotProductAttention`."""

    kernel_init: NdInitializer = nd_dense_init(1.0, "fan_in", "normal")

    _projection = DenseGeneral
    _input_axes = ("embed", "heads", "kv")
    _output_axes = ("heads", "kv", "embed")
