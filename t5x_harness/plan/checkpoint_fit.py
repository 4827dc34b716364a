"""How a checkpoint's tree compares with the model's, by the checkpoint's metadata alone."""

from __future__ import annotations

import dataclasses

from t5x_harness.plan.checkpoint_source import StartPoint, stored_shapes
from t5x_harness.plan.state_shapes import StateShapes

__all__ = ["CheckpointFit", "compare"]

_Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class CheckpointFit:
    """Where a checkpoint and the model's parameters differ.

    Attributes:
      different: arrays of both with their shapes in the checkpoint and in the model.
      missing: the model's arrays that the checkpoint lacks.
      same: how many arrays agree.
    """

    different: tuple[tuple[str, _Shape, _Shape], ...]
    missing: tuple[str, ...]
    same: int


def compare(start: StartPoint, shapes: StateShapes | None) -> CheckpointFit | None:
    """Compares the checkpoint to start from with the model; None where either cannot be read here."""
    if not start.path or start.problem or not start.reachable or shapes is None:
        return None
    stored = stored_shapes(start.path)
    if stored is None:
        return None
    ours = {leaf.path: leaf.shape for leaf in shapes.parameters}
    different = tuple((p, stored[p], shape) for p, shape in ours.items() if p in stored and stored[p] != shape)
    missing = tuple(path for path in ours if path not in stored)
    return CheckpointFit(different, missing, len(ours) - len(different) - len(missing))
