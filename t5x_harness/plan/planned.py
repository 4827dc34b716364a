"""A run as the plan sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.checkpoint_fit import CheckpointFit
from t5x_harness.plan.checkpoint_source import StartPoint, uses_orbax
from t5x_harness.plan.data_layout import DataLayout
from t5x_harness.plan.learning_rate import LearningRate
from t5x_harness.plan.state_shapes import StateShapes
from t5x_harness.plan.steps import PlannedSteps
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.slices.slice import Slice


@dataclasses.dataclass(frozen=True)
class Planned:
    """The full-size run in shapes.

    Attributes:
      run: the resolved run.
      slice: the slice whose mesh is in place.
      partitioner: T5X's partitioner on it.
      layout: how devices and hosts share a batch.
      start: the checkpoint that the run starts from.
      steps: the steps that it trains; None if it does not train.
      learning_rate: the rate that it trains with; None if it does not train.
      shapes: the train state; None if it could not be traced.
      fit: how the checkpoint compares with the model; None if there is no checkpoint, or it cannot be read here.
    """

    run: Resolved
    slice: Slice
    partitioner: Any
    layout: DataLayout
    start: StartPoint
    steps: PlannedSteps | None
    learning_rate: LearningRate | None
    shapes: StateShapes | None
    fit: CheckpointFit | None

    @property
    def config(self) -> GinConfig:
        """The parsed config."""
        return self.run.config

    @property
    def uses_orbax(self) -> bool:
        """Whether the run restores and saves with orbax."""
        return uses_orbax(self.config)

    @property
    def save(self) -> Any:
        """T5X's SaveCheckpointConfig; None if the run has none."""
        return getattr(self.config.build("checkpoint_cfg"), "save", None)

    def restore_key(self, parameter: str) -> BindingKey | None:
        """Returns the binding of a restore setting, or the path's if the setting is not bound."""
        return self.config.owner(self.config.restore_key(parameter)) or self.start.key

    @property
    def mesh(self) -> Mapping[str, int]:
        """Devices by axis: ``data`` and ``model``."""
        return dict(self.partitioner.mesh.shape)
