"""Makes stages of a run share the steps that each of them would otherwise trace, lower and compile again.

To T5X, training, evaluation and inference are separate jobs, and each creates the function that decodes or scores a
batch. JAX caches what it traced by the function itself. The stages of one run share a process and a model that nobody
changes between them, so they can share the function, too.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

_MODELS = 8
"""How many methods of models are kept; the process of one run rarely has two."""


def share_steps() -> None:
    """Returns the same step for the same method of the same model from now on; only the embedded T5X supports this."""
    inference: Any = sys.modules.get("t5x._inference")
    if inference is None or hasattr(inference.step_with_indices, "__wrapped__"):
        return
    make = inference.step_with_indices
    kept = functools.lru_cache(maxsize=_MODELS)(make)

    @functools.wraps(make)
    def shared(infer_step: Any) -> Any:
        return kept(infer_step) if inspect.ismethod(infer_step) else make(infer_step)

    inference.step_with_indices = shared
