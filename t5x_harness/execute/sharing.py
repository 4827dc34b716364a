"""Traces, lowers and compiles once what several stages of a run would trace alike.

Training, evaluation and inference are jobs of their own to T5X, and each makes the function that decodes or scores a
batch anew. JAX keeps what it traced by the function itself. Where they are stages of one run in one process, with one
model that nobody changes between them, the function may as well be the same one.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

_MODELS = 8
"""How many methods of models are kept; in the process of one run there are hardly two."""


def share_steps() -> None:
    """Has the same method of the same model always be the same step; acts with the embedded T5X, and once."""
    inference: Any = sys.modules.get("t5x._inference")
    if inference is None or hasattr(inference.step_with_indices, "__wrapped__"):
        return
    make = inference.step_with_indices
    kept = functools.lru_cache(maxsize=_MODELS)(make)

    @functools.wraps(make)
    def shared(infer_step: Any) -> Any:
        return kept(infer_step) if inspect.ismethod(infer_step) else make(infer_step)

    inference.step_with_indices = shared
