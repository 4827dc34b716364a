"""A trainer whose job is preempted at a step; it derives from the module's, as a user's own may."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import jax

from t5x_harness import preemption


class Trainer(preemption.Trainer):
    """Sends its process SIGTERM before it draws the batch of step ``at``, if it is the last of the processes."""

    def __init__(self, *args: Any, at: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._at = at

    def train(self, batch_iter: Iterator[Any], num_steps: int, start_step: int | None = None) -> Any:
        """Trains as T5X does."""
        assert start_step is not None

        def batches() -> Iterator[Any]:
            for step in range(start_step, start_step + num_steps):
                if step == self._at and jax.process_index() == jax.process_count() - 1:
                    os.kill(os.getpid(), signal.SIGTERM)
                yield next(batch_iter)

        return super().train(batches(), num_steps, start_step=start_step)
