"""How many runs a Tensorboard has."""

from __future__ import annotations

from collections.abc import Iterable

from t5x_harness.google.vertex.api.resources import aspect_key
from t5x_harness.google.vertex.api.service import Api

__all__ = ["count", "forget", "remember"]

_RUNS = "runs"


def count(api: Api, tensorboard: str) -> int:
    """How many there are."""
    return len(api.state.members(aspect_key(tensorboard, _RUNS)))


def remember(api: Api, tensorboard: str, run: str) -> None:
    """Counts a run that was made."""
    api.state.add(aspect_key(tensorboard, _RUNS), run)


def forget(api: Api, tensorboard: str, runs: Iterable[str]) -> None:
    """Counts runs that were deleted no longer."""
    for run in runs:
        api.state.discard(aspect_key(tensorboard, _RUNS), run)
