"""Measures what a stage spends its time on, and counts what it does."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from t5x_harness.spec import StageResult
from t5x_harness.timings.kinds import Parts
from t5x_harness.timings.sampler import Sampler

_COUNTED = {
    "/jax/core/compile/jaxpr_trace_duration": "traces",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowerings",
    "/jax/compilation_cache/cache_misses": "compilations",
    "/jax/compilation_cache/cache_hits": "cache hits",
}
"""JAX's events, and the names of their numbers."""


def measured(work: Callable[[], StageResult], t5x: str) -> StageResult:
    """Runs a stage in this thread, and returns its result with what its time went into and what was counted.

    Args:
      work: the stage.
      t5x: the folder of the T5X in use.
    """
    from jax import monitoring

    counts = Counter(dict.fromkeys(_COUNTED.values(), 0))

    def count(event: str, *_: Any, **__: Any) -> None:
        if event in _COUNTED:
            counts[_COUNTED[event]] += 1

    monitoring.register_event_listener(count)
    monitoring.register_event_duration_secs_listener(count)
    try:
        with Sampler(Parts(t5x)) as sampler:
            result = work()
    finally:
        monitoring.unregister_event_listener(count)
        monitoring.unregister_event_duration_listener(count)
    return dataclasses.replace(result, parts=sampler.rounded(), counts={**counts, "modules": len(sys.modules)})
