"""Keeping the best checkpoints by a metric, and not the latest."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import gin
import numpy as np
from absl import logging
from orbax.checkpoint import checkpoint_managers
from t5x import checkpoint_utils, partitioning
from t5x import train_state as train_state_lib
from t5x._checkpoints.legacy import Checkpointer
from t5x._checkpoints.metrics import populate_metrics_for_steps
from t5x._shown_as import shown_as

_MODES = ("max", "min")


@gin.configurable
@shown_as("t5x.checkpoints")
class SaveBestCheckpointer(Checkpointer):
    """A checkpointer that keeps the checkpoints with the best metric, and the latest one besides.

    The metric is read from TensorBoard files in folders beside the checkpoints.

    Args:
        train_state: see :class:`Checkpointer`.
        partitioner: see :class:`Checkpointer`.
        checkpoints_dir: folder of all checkpoints and of TensorBoard's folders.
        dataset_iterator: see :class:`Checkpointer`.
        keep: how many of the best to keep.
        save_dtype: see :class:`Checkpointer`.
        restore_dtype: see :class:`Checkpointer`.
        metric_name_to_monitor: ``run/tag``, such as ``train/accuracy``.
        metric_mode: ``max`` or ``min``: which values are the best.
        keep_checkpoints_without_metrics: keep those that have no value; otherwise they are the first to go.
        force_keep_period: keep the checkpoints of steps that this divides.
        keep_dataset_checkpoints: see :class:`Checkpointer`.

    Raises:
        ValueError: another ``metric_mode``.
    """

    def __init__(
        self,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        checkpoints_dir: str,
        dataset_iterator: Any = None,
        *,
        keep: int | None = None,
        save_dtype: Any = np.float32,
        restore_dtype: Any = None,
        metric_name_to_monitor: str = "train/accuracy",
        metric_mode: str = "max",
        keep_checkpoints_without_metrics: bool = True,
        force_keep_period: int | None = None,
        keep_dataset_checkpoints: int | None = None,
    ):
        if metric_mode not in _MODES:
            raise ValueError(f"SaveBestCheckpointer.metric_mode is {metric_mode!r}; it must be one of {_MODES}")
        super().__init__(
            train_state,
            partitioner,
            checkpoints_dir,
            dataset_iterator,
            keep=keep,
            save_dtype=save_dtype,
            restore_dtype=restore_dtype,
            keep_dataset_checkpoints=keep_dataset_checkpoints,
        )
        # The train script hands these four to the orbax manager, when that one is to save.
        self._force_keep_period = force_keep_period
        self._keep_checkpoints_without_metrics = keep_checkpoints_without_metrics
        self._metric_mode, self._metric_name_to_monitor = metric_mode, metric_name_to_monitor

    def _remove_old_checkpoints(self) -> None:
        if not self.keep:
            return
        *older, latest = self.all_steps()
        if self._force_keep_period:
            older = [step for step in older if step % self._force_keep_period]
        if len(older) <= self.keep:
            return
        values = populate_metrics_for_steps(self.checkpoints_dir, self._metric_name_to_monitor, [*older, latest])
        logging.info("%s by step: %s", self._metric_name_to_monitor, values)
        if self._keep_checkpoints_without_metrics:
            older = [step for step in older if step in values]
        sign = 1.0 if self._metric_mode == "max" else -1.0
        worst_first = sorted(older, key=lambda step: sign * values[step] if step in values else float("-inf"))
        for step in worst_first[: max(len(older) - self.keep, 0)]:
            checkpoint_utils.remove_checkpoint_dir(self._get_checkpoint_dir(step))


@dataclasses.dataclass(frozen=True)
class _ScoredCheckpoint:
    """A checkpoint with its metric, as orbax' policies look at it."""

    step: int
    time: datetime.datetime
    metrics: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestByTensorBoard(checkpoint_managers.PreservationPolicy):
    """Tells orbax to keep the checkpoints with the best value of a metric in TensorBoard files.

    Attributes:
        directory: folder of the run.
        metric_name: ``run/tag``.
        mode: ``max`` or ``min``.
        keep: how many to keep; None for all.
        keep_without_metrics: keep those that have no value too.
    """

    directory: str
    metric_name: str
    mode: str
    keep: int | None
    keep_without_metrics: bool

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: checkpoint_managers.PreservationContext
    ) -> Sequence[bool]:
        """Returns for each checkpoint whether to keep it."""
        values = populate_metrics_for_steps(self.directory, self.metric_name, [info.step for info in checkpoints])
        best = checkpoint_managers.BestN(
            get_metric_fn=float,
            reverse=self.mode == "min",
            n=self.keep,
            keep_checkpoints_without_metrics=self.keep_without_metrics,
        )
        scored = [_ScoredCheckpoint(info.step, info.time, values.get(info.step)) for info in checkpoints]
        return best.should_preserve(scored, context=context)
