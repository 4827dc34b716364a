"""How many runs a Tensorboard has."""

from __future__ import annotations

from collections.abc import Iterable

from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import Services

_RUNS = "runs"


def count(services: Services, tensorboard: str) -> int:
    return len(services.state.members(aspect_key(tensorboard, _RUNS)))


def remember(services: Services, tensorboard: str, run: str) -> None:
    """Counts a run that was made."""
    services.state.add(aspect_key(tensorboard, _RUNS), run)


def forget(services: Services, tensorboard: str, runs: Iterable[str]) -> None:
    """Counts runs that were deleted no longer."""
    for run in runs:
        services.state.discard(aspect_key(tensorboard, _RUNS), run)
