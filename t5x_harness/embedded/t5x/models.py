"""Models: a network with its loss, its metrics and its way to predict, as trainer, evaluator and inference use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t5x._models.base import BaseModel, DecodeFnCallable, PyTree, TokensIdsToLogitsCallable
from t5x._models.decoder_only import DecoderOnlyModel, remove_prefix
from t5x._models.encoder_decoder import DecoderParams, EncoderDecoderModel
from t5x._models.metrics import (
    compute_base_metrics,
    compute_metrics,
    compute_weighted_accuracy,
    count_packed_examples,
)
from t5x._models.transformer import BaseTransformerModel
from t5x._public import publish
from t5x.metrics import MetricsMap

if TYPE_CHECKING:
    import seqio

__all__ = [
    "BaseModel",
    "BaseTransformerModel",
    "DecodeFnCallable",
    "DecoderOnlyModel",
    "DecoderParams",
    "EncoderDecoderModel",
    "MetricsMap",
    "PyTree",
    "TokensIdsToLogitsCallable",
    "compute_base_metrics",
    "compute_metrics",
    "compute_weighted_accuracy",
    "count_packed_examples",
    "get_input_vocabulary",
    "get_output_vocabulary",
    "remove_prefix",
]


def get_input_vocabulary(model: BaseTransformerModel) -> seqio.Vocabulary:
    """Returns the vocabulary of a model's inputs; Gin files give it to those who need one."""
    return model.input_vocabulary


def get_output_vocabulary(model: BaseTransformerModel) -> seqio.Vocabulary:
    """Returns the vocabulary of a model's targets; Gin files give it to those who need one."""
    return model.output_vocabulary


publish(__name__)
