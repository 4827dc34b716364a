"""What a task's preprocessors ask for."""

from __future__ import annotations

import functools
import inspect

import seqio

__all__ = ["needing_lengths"]


def needing_lengths(task: seqio.Task) -> str | None:
    """The name of the first preprocessor that cannot do without the feature lengths; None where there is none."""
    for preprocessor in task._preprocessor_constructor_args:
        parameters = {} if _is_placeholder(preprocessor) else inspect.signature(preprocessor).parameters
        needed = parameters.get("sequence_length")
        if needed is not None and needed.default is inspect.Parameter.empty:
            function = preprocessor.func if isinstance(preprocessor, functools.partial) else preprocessor
            return getattr(function, "__name__", type(function).__name__)
    return None


def _is_placeholder(preprocessor: object) -> bool:
    return isinstance(preprocessor, seqio.CacheDatasetPlaceholder)
