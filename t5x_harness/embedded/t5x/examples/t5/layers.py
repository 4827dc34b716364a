"""The layers of T5: attention, feed-forward block, norm, embeddings, relative position biases, and attention masks."""

from __future__ import annotations

from t5x._public import publish
from t5x.examples.t5._attention import MultiHeadDotProductAttention, dot_product_attention
from t5x.examples.t5._dense import DenseGeneral, LayerNorm, MlpBlock
from t5x.examples.t5._embedding import Embed, RelativePositionBiases, default_embed_init
from t5x.examples.t5._masks import (
    combine_biases,
    combine_masks,
    make_attention_mask,
    make_causal_mask,
    make_decoder_mask,
)
from t5x.examples.t5._types import (
    Activation,
    Array,
    DType,
    Initializer,
    PRNGKey,
    Shape,
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
    "LayerNorm",
    "MlpBlock",
    "MultiHeadDotProductAttention",
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
    "param_with_axes",
    "with_sharding_constraint",
]

publish(__name__)
