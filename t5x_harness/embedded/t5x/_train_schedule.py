"""When a training run evaluates, saves and collects garbage: arithmetic on step numbers only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from t5x._errors import ConfigError
from t5x.utils import find_first_checkpoint_step, find_next_checkpoint_step


@dataclasses.dataclass(frozen=True)
class Epoch:
    """A stretch of steps between two moments at which something other than training may happen.

    Its number counts from step 0 of the model, so a resumed run continues to count.
    """

    number: int
    end_step: int
    is_last: bool


@dataclasses.dataclass(frozen=True)
class Stop:
    """A step at which metrics are written.

    Attributes:
        saves: whether an extra checkpoint is saved there, besides the periodic ones.
        index: the index of the next entry of ``Periods.save_at`` to consider.
    """

    step: int
    saves: bool
    index: int = 0


@dataclasses.dataclass(frozen=True)
class Periods:
    """How often things happen, in steps counted from the first step of this run; 0 means never.

    Attributes:
        evaluate: both kinds of evaluation.
        save: checkpoints.
        collect: Python's garbage.
        save_at: further steps at which to save, in ascending order, counted from step 0 of the model.
    """

    evaluate: int = 0
    save: int = 0
    collect: int = 0
    save_at: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        named = self._named()
        for name, period in named.items():
            if period % self.shortest:
                shortest = next(other for other, value in named.items() if value == self.shortest)
                fitting = math.ceil(period / self.shortest) * self.shortest
                raise ConfigError(
                    f"{name} ({period}) must be a multiple of the shortest period, {shortest} ({self.shortest}): "
                    f"set {name} to {fitting}, or the two to the same number"
                )
        if self.save_at and not self.save:
            raise ConfigError(
                f"SaveCheckpointConfig.checkpoint_steps ({list(self.save_at)}) comes on top of "
                f"SaveCheckpointConfig.period ({self.save}): give a period too"
            )

    def _named(self) -> dict[str, int]:
        every = {
            "train.eval_period": self.evaluate,
            "SaveCheckpointConfig.period": self.save,
            "train.gc_period": self.collect,
        }
        return {name: period for name, period in every.items() if period}

    @property
    def shortest(self) -> int:
        """The shortest period, or 0 if there is none."""
        return min(self._named().values(), default=0)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The steps of one run, from the restored checkpoint's step, or 0, to ``total_steps``.

    Metrics are written every ``stats_period`` steps and at the end of an epoch.
    """

    first_step: int
    total_steps: int
    periods: Periods
    stats_period: int | None = None

    def __post_init__(self) -> None:
        if self.total_steps < self.first_step:
            raise ConfigError(
                f"train.total_steps ({self.total_steps}) is less than the step of the checkpoint ({self.first_step}): "
                f"it counts from step 0, so set TRAIN_STEPS above {self.first_step}, or set train.relative_steps to "
                "the number of steps to add"
            )
        if self.periods.save_at:
            self._rehearse()

    def _rehearse(self) -> None:
        """Computes all stops now, so that what ``next_stop`` refuses is refused before the first step."""
        stop = Stop(self.first_step, saves=False)
        for epoch in self.epochs():
            while stop.step < epoch.end_step:
                stop = self.next_stop(stop, epoch)

    @property
    def nothing_to_do(self) -> bool:
        """Whether the checkpoint is already at the last step."""
        return self.total_steps == self.first_step

    @property
    def epoch_length(self) -> int:
        """Steps of an epoch; the last one may be shorter."""
        return min(self.periods.shortest or self.total_steps, self.total_steps)

    def epochs(self) -> Iterator[Epoch]:
        """Yields the epochs up to ``total_steps``."""
        if self.nothing_to_do:
            return
        count = math.ceil((self.total_steps - self.first_step) / self.epoch_length)
        number = self.first_step // self.epoch_length
        for index in range(1, count + 1):
            end = min(self.first_step + index * self.epoch_length, self.total_steps)
            yield Epoch(number + index - 1, end, is_last=index == count)

    def is_due(self, period: int, step: int, epoch: Epoch) -> bool:
        """Returns whether an event with this ``period`` is due at ``step``, at the end of ``epoch``."""
        return bool(period) and (epoch.is_last or (step - self.first_step) % period == 0)

    def next_stop(self, last: Stop, epoch: Epoch) -> Stop:
        """Returns the stop after ``last``, within ``epoch``.

        Raises:
            ConfigError: a case in which T5X itself gets stuck: it considers the entry of ``checkpoint_steps`` that it
                saved at again, unless another one follows that it has not yet reached.
        """
        step = min(epoch.end_step, last.step + (self.stats_period or self.epoch_length))
        save_at = self.periods.save_at
        if not save_at:
            return Stop(step, saves=False)
        index = find_first_checkpoint_step(last.index, save_at, self.first_step, last.step)
        num_steps, saves = find_next_checkpoint_step(
            index, step - last.step, False, last.step, save_at, epoch.end_step, self.periods.save, self.first_step
        )
        if num_steps <= 0:
            raise ConfigError(
                f"SaveCheckpointConfig.checkpoint_steps ({list(save_at)}) does not get past step {last.step} with "
                f"SaveCheckpointConfig.period ({self.periods.save}): T5X would save step {save_at[index]} a second "
                "time and fail. List ascending steps, leave out those that the period hits, and end with "
                f"{self.total_steps}, the last step of the training"
            )
        step = last.step + num_steps
        saves = saves and step != self.total_steps  # the end of the training saves anyway
        if saves and index < len(save_at) - 1:
            index += 1
        return Stop(step, saves, index)
