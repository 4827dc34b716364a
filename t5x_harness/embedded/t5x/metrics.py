"""Metrics of a training step that merge over micro-batches, hosts and steps, on top of ``clu.metrics``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any, Self, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from clu import metrics as clu_metrics

MetricsMap = MutableMapping[str, clu_metrics.Metric]
Scalar = int | float | np.number | np.ndarray | jax.Array

_Tree = TypeVar("_Tree")


def _as_array(value: Scalar) -> jax.Array | np.ndarray:
    """Makes a number an array on the host: all arithmetic with an array on a device would be compiled for it."""
    return value if isinstance(value, jax.Array) else np.asarray(value)


@flax.struct.dataclass
class Sum(clu_metrics.Metric):
    """A plain total."""

    total: Scalar

    @classmethod
    def from_model_output(cls, values: Scalar, **_: Any) -> Self:
        """Sums all elements of ``values``."""
        return cls(total=jnp.sum(jnp.asarray(values)))

    def merge(self, other: Self) -> Self:
        """Adds the two totals."""
        return type(self)(total=self.total + other.total)

    def compute(self) -> jax.Array | np.ndarray:
        """Returns the total."""
        return _as_array(self.total)


@flax.struct.dataclass
class Step(clu_metrics.Metric):
    """A metric that depends on how many steps it spans; the trainer sets their number when it summarizes."""

    steps: int | None = 1

    def replace_steps(self, steps: int) -> Self:
        """Returns this metric with another count of steps."""
        return self.replace(steps=steps)

    def compute(self) -> jax.Array | np.ndarray:
        """Returns the count of steps; a ValueError if it was never set."""
        if self.steps is None:
            raise ValueError(f"{type(self).__name__} has no step count: call replace_steps before compute")
        return _as_array(self.steps)


@flax.struct.dataclass
class AveragePerStep(Step):
    """A total divided by the count of steps, e.g. the loss per step."""

    total: Scalar | None = None

    @classmethod
    def from_model_output(cls, values: Scalar, steps: int | None = 1, **_: Any) -> Self:
        """Sums all elements of ``values``, which come from ``steps`` steps."""
        return cls(total=jnp.sum(jnp.asarray(values)), steps=steps)

    def merge(self, other: Self) -> Self:
        """Adds totals and step counts."""
        return type(self)(total=self.total + other.total, steps=self.steps + other.steps)

    def compute(self) -> jax.Array | np.ndarray:
        """Returns total / steps; a ValueError if one of them was never set."""
        steps = super().compute()
        if self.total is None:
            raise ValueError(f"{type(self).__name__} has no total: build it with from_model_output or total=")
        return self.total / steps


@flax.struct.dataclass
class Time(clu_metrics.Metric):
    """A duration in seconds that is measured outside of the compiled step; the trainer sets it when it summarizes."""

    duration: Scalar | None = None

    def merge(self, other: Self) -> Self:
        """Returns this metric unchanged: the one duration that will be set covers both."""
        return self

    def compute(self) -> jax.Array | np.ndarray:
        """Returns the duration; a ValueError if it was never set."""
        if self.duration is None:
            raise ValueError(f"{type(self).__name__} has no duration: call replace_duration before compute")
        return _as_array(self.duration)

    def replace_duration(self, duration: Scalar) -> Self:
        """Returns this metric with a duration, in seconds."""
        return self.replace(duration=duration)


@flax.struct.dataclass
class TimeRate(Time):
    """A total per second, e.g. sequences per second."""

    numerator: jax.Array | None = None

    @classmethod
    def from_model_output(cls, numerator: Scalar, **_: Any) -> Self:
        """Starts from a total whose duration is not known yet."""
        return cls(numerator=numerator)

    def merge(self, other: Self) -> Self:
        """Adds the totals; an AssertionError if a duration is set: rates over different times cannot be added."""
        if self.duration is not None or other.duration is not None:
            raise AssertionError("rates can only be merged before their durations are set")
        return type(self)(numerator=self.numerator + other.numerator)

    def compute(self) -> jax.Array | np.ndarray:
        """Returns numerator / duration; a ValueError if the latter was never set."""
        return self.numerator / super().compute()


@flax.struct.dataclass
class StepsPerTime(Step, Time):
    """Training steps per second."""

    @classmethod
    def from_model_output(cls, steps: int | None = 1, **_: Any) -> Self:
        """Starts from a count of steps whose duration is not known yet."""
        return cls(steps=steps)

    def merge(self, other: Self) -> Self:
        """Adds the step counts."""
        return type(self)(steps=self.steps + other.steps)

    def compute(self) -> jax.Array | np.ndarray:
        """Returns steps / duration; a ValueError if one of them was never set."""
        return Step.compute(self) / Time.compute(self)


def is_metric_obj(obj: Any) -> bool:
    """Returns whether ``obj`` is a clu metric."""
    return isinstance(obj, clu_metrics.Metric)


def is_time_metric(obj: Any) -> bool:
    """Returns whether ``obj`` is a metric that waits for a duration."""
    return isinstance(obj, Time)


def create_metrics_dict(float_metrics_dict: Mapping[str, Scalar]) -> dict[str, clu_metrics.Metric]:
    """Wraps each number into a ``Sum``."""
    return {name: Sum(total=value) for name, value in float_metrics_dict.items()}


def shape_obj_to_defined_obj(obj: clu_metrics.Metric) -> clu_metrics.Metric:
    """Replaces the shapes in a metric (as ``jax.eval_shape`` gives them) by zeros of that shape and dtype.

    There may be metrics inside it; fields without a shape are kept.
    """

    def defined(value: Any) -> Any:
        if is_metric_obj(value):
            return shape_obj_to_defined_obj(value)
        return jnp.zeros(value.shape, value.dtype) if hasattr(value, "shape") else value

    return type(obj)(**{field.name: defined(getattr(obj, field.name)) for field in dataclasses.fields(obj)})


def set_time_metrics_duration(metrics: _Tree, duration: Scalar) -> _Tree:
    """Sets the duration (in seconds) of every ``Time`` in a tree of metrics; the others stay as they are."""
    return jax.tree.map(
        lambda metric: metric.replace_duration(duration) if is_time_metric(metric) else metric,
        metrics,
        is_leaf=is_time_metric,
    )


def set_step_metrics_num_steps(metrics: _Tree, num_steps: int) -> _Tree:
    """Sets the step count of every ``Step`` in a tree of metrics; the others stay as they are."""
    return jax.tree.map(
        lambda metric: metric.replace_steps(num_steps) if isinstance(metric, Step) else metric,
        metrics,
        is_leaf=is_metric_obj,
    )
