"""The shapes of the callables and futures that the trainer takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Protocol

import clu.metrics
import clu.values
import jax
import typing_extensions

Batch = Mapping[str, Any]
MetricMapType = MutableMapping[str, clu.metrics.Metric]
MetricValueMapType = Mapping[str, clu.values.Value]


class ArrayMapFuture(typing_extensions.Protocol):
    """A mapping of arrays that is still being computed."""

    def result(self) -> Mapping[str, Any]:
        """Waits for it and returns it."""
        ...


class MetricValueMapFuture(typing_extensions.Protocol):
    """Summarized metrics that are still being computed."""

    def result(self) -> Mapping[str, clu.values.Value]:
        """Waits for them and returns value by tag."""
        ...


class TimeFuture(typing_extensions.Protocol):
    """A moment or duration in seconds that is still being measured."""

    def result(self) -> float:
        """Waits for it and returns it."""
        ...


class LearningRateCallable(typing_extensions.Protocol):
    """A learning rate schedule."""

    def __call__(self, step: jax.Array) -> jax.Array:
        """Returns the learning rate (a scalar) at ``step``."""
        ...


class SummarizeMetricsCallable(typing_extensions.Protocol):
    """Makes what is written out of what was accumulated."""

    def __call__(self, metrics: MetricMapType, duration: float, num_steps: int) -> Mapping[str, Any]:
        """Returns the summary of ``metrics``, merged over ``num_steps`` steps that took ``duration`` seconds."""
        ...


class PartitionedTrainCallable(typing_extensions.Protocol):
    """One train step, partitioned over the mesh."""

    def __call__(self, train_state: Any, batch: Batch) -> tuple[Any, MetricMapType]:
        """Returns the next train state and the step's metrics."""
        ...


class PartitionedEvalCallable(typing_extensions.Protocol):
    """One eval step, partitioned over the mesh."""

    def __call__(self, train_state: Any, batch: Any) -> MetricMapType:
        """Returns the step's metrics."""
        ...


class BaseTrainerConstructor(Protocol):
    """What ``trainer_cls`` of ``train`` must be callable as."""

    def __call__(
        self,
        model: Any,
        train_state: Any,
        partitioner: Any,
        eval_names: Sequence[str],
        summary_dir: str | None,
        train_state_axes: Any,
        rng: jax.Array,
    ) -> Any:
        """Returns a ``BaseTrainer``; the arguments are those of its constructor."""
        ...
