"""The recorded cases' tasks, and broken ones, each with one mistake that users make."""

from __future__ import annotations

from typing import Any

import ref_tasks
import seqio

_GOOD = seqio.TaskRegistry.get("ref_reverse")
_STEPS = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim]


def add(name: str, **changes: Any) -> None:
    """Registers a copy of ref_reverse with some parts changed."""
    parts: dict[str, Any] = {
        "source": _GOOD.source,
        "preprocessors": _STEPS,
        "output_features": ref_tasks._PAIR,
        "metric_fns": [ref_tasks.exact_match],
    }
    seqio.TaskRegistry.add(name, **{**parts, **changes})


def metric_with_a_bug(targets: Any, predictions: Any) -> dict[str, float]:
    """Takes a list of texts for a dict."""
    return {"bug": targets["text"]}


class MetricWithMemory:
    """Keeps what it was called with, and breaks when that is more than it has room for."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._calls = 0
        self.__name__ = type(self).__name__

    def __call__(self, targets: Any, predictions: Any) -> dict[str, float]:
        self._calls += 1
        return {"left": float([*range(self._room)][self._calls - 1])}


def int_postprocessor(text: str, **_: Any) -> int:
    """Believes that a model writes numbers."""
    return int(text)


def broken_preprocessor(dataset: Any) -> Any:
    """Reads a feature that is not there."""
    return dataset.map(lambda example: {**example, "inputs": example["source"]})


add("bad_metric", metric_fns=[metric_with_a_bug])
add("late_metric", metric_fns=[MetricWithMemory(room=5)])  # the early calls just fit
add("bad_postprocess", postprocess_fn=int_postprocessor)
add("bad_preprocess", preprocessors=[broken_preprocessor, *_STEPS])
add("no_eos", preprocessors=[seqio.preprocessors.tokenize])
add("no_metrics", metric_fns=[])
