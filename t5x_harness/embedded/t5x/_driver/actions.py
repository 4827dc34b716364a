"""Actions look at fresh metrics and may end the training."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import clu.values
from absl import logging
from t5x._driver.protocols import MetricValueMapType


@enum.unique
class ActionMode(enum.Enum):
    """After which kind of work an action runs."""

    TRAIN = 1
    TRAIN_EVAL = 2
    INFER_EVAL = 3


class BaseAction(abc.ABC):
    """Something to do whenever new metrics are there."""

    @abc.abstractmethod
    def run(self, train_state: Any, metrics_by_task: Mapping[str, MetricValueMapType]) -> bool:
        """Acts on the metrics.

        Args:
            train_state: the state that the metrics were measured with.
            metrics_by_task: value by metric name, by task name; after training the one task is called ``train``.

        Returns:
            True if the training should stop.
        """


ActionMapType = Mapping[ActionMode, Sequence[BaseAction]]


def _watched(
    action: BaseAction, task: str, metric: str, metrics_by_task: Mapping[str, MetricValueMapType], *, floats: bool
) -> Any | None:
    """Returns the number that ``action`` watches, or None with a warning that says what there is instead.

    Args:
        action: named in the warning.
        task: the task to look for.
        metric: the metric of that task to look for.
        metrics_by_task: where to look.
        floats: whether a plain float counts too; SeqIO's evaluator gives those.
    """
    if task not in metrics_by_task:
        problem = f"there is no task {task!r}; there are {sorted(metrics_by_task)}"
    elif metric not in metrics_by_task[task]:
        problem = f"task {task!r} has no metric {metric!r}; it has {sorted(metrics_by_task[task])}"
    else:
        value = metrics_by_task[task][metric]
        if isinstance(value, clu.values.Scalar):
            return value.value
        if floats and isinstance(value, float):
            return value
        problem = f"metric {metric!r} of task {task!r} is a {type(value).__name__}, not a scalar"
    logging.warning("%s did nothing: %s.", type(action).__name__, problem)
    return None


class EarlyStoppingAction(BaseAction):
    """Stops the training when a metric has stopped getting better."""

    def __init__(self, metric: tuple[str, str], mode: str, patience: int = 3, atol: float = 0.0, rtol: float = 0.0):
        """Says what to watch and when to give up.

        Args:
            metric: task name and metric name, such as ``("my_task", "accuracy")``.
            mode: ``"min"`` if less is better, ``"max"`` if more is.
            patience: how many values in a row, each no better than the one before, end the training.
            atol: a change of at most this much is not an improvement.
            rtol: added to ``atol`` as a fraction of the previous value.

        Raises:
            ValueError: if ``mode`` is neither, or a tolerance is negative.
        """
        if mode not in ("min", "max"):
            raise ValueError(f"EarlyStoppingAction.mode must be 'min' or 'max', not {mode!r}")
        if atol < 0 or rtol < 0:
            raise ValueError(f"EarlyStoppingAction.atol ({atol}) and .rtol ({rtol}) must not be negative")
        self._task, self._metric = metric
        self._sign = 1 if mode == "min" else -1
        self._patience = patience
        self._atol = atol
        self._rtol = rtol
        self._history: list[Any] = []

    def _no_better(self, previous: Any, current: Any) -> bool:
        gain = self._sign * (previous - current)
        return bool(gain <= self._atol + self._rtol * abs(previous))

    def run(self, train_state: Any, metrics_by_task: Mapping[str, MetricValueMapType]) -> bool:
        """Adds the newest value to the history; True if none of the last ``patience`` values improved."""
        value = _watched(self, self._task, self._metric, metrics_by_task, floats=True)
        if value is None:
            return False
        self._history.append(value)
        if len(self._history) < self._patience:
            return False
        pairs = zip(self._history, self._history[1:], strict=False)
        if all(self._no_better(previous, current) for previous, current in pairs):
            logging.warning(
                "Stopping early: %s of task %s did not improve over its last %d values, %s.",
                self._metric, self._task, self._patience, self._history,
            )  # fmt: skip
            return True
        del self._history[0]
        return False


class TerminateOnNanAction(BaseAction):
    """Stops the training when a metric is no longer a finite number."""

    def __init__(self, task: str, metric: str = "loss"):
        """Watches the metric called ``metric`` of the task called ``task``."""
        self._task = task
        self._metric = metric

    def run(self, train_state: Any, metrics_by_task: Mapping[str, MetricValueMapType]) -> bool:
        """True if the watched value is NaN or infinite."""
        value = _watched(self, self._task, self._metric, metrics_by_task, floats=False)
        if value is None or math.isfinite(value):
            return False
        logging.warning("Stopping: %s of task %s is %s.", self._metric, self._task, value)
        return True
