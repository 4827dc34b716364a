"""Autoregressive decoding: beam search, sampling, and the array moves they are made of.

A decoder gets the model as a function from a `DecodingState` to logits and a new cache, so it fits every network.
"""

from __future__ import annotations

from t5x._decoding.beam_search import BeamState, beam_init, beam_search
from t5x._decoding.beams import (
    add_beam_dim,
    brevity_penalty,
    cache_gather_beams,
    cache_map,
    flat_batch_beam_expand,
    flatten_beam_dim,
    gather_beams,
    gather_topk_beams,
    top_k_two_stage,
    unflatten_beam_dim,
)
from t5x._decoding.sampling import (
    MIN_TEMPERATURE,
    LogitCallbackFn,
    SamplingLoopState,
    StateCallbackFn,
    temperature_sample,
)
from t5x._decoding.state import NEG_INF, NEG_INF_VALUE, DecodingState, PyTree
from t5x._public import publish

__all__ = [
    "MIN_TEMPERATURE",
    "NEG_INF",
    "NEG_INF_VALUE",
    "BeamState",
    "DecodingState",
    "LogitCallbackFn",
    "PyTree",
    "SamplingLoopState",
    "StateCallbackFn",
    "add_beam_dim",
    "beam_init",
    "beam_search",
    "brevity_penalty",
    "cache_gather_beams",
    "cache_map",
    "flat_batch_beam_expand",
    "flatten_beam_dim",
    "gather_beams",
    "gather_topk_beams",
    "temperature_sample",
    "top_k_two_stage",
    "unflatten_beam_dim",
]

publish(__name__)
