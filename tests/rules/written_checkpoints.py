"""Writes checkpoints for the examples of rules, in a process of its own: what a run's own checkpointer would write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t5x_harness.execute.execution import Execution, open_execution
from t5x_harness.execute.process import run_stage
from t5x_harness.spec import Stage


def open_writer(argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> Writer:
    """Takes what :func:`open_execution` takes."""
    return Writer(open_execution(argument, progress))


class Writer:
    """A run of which only the first checkpoint is wanted."""

    def __init__(self, run: Execution) -> None:
        self._run = run

    def write(self, folder: str) -> int:
        """Writes a checkpoint of the config's model and optimizer; gives the number of its arrays."""
        from t5x_harness.execute.checkpoint_standin import write_standin

        run_stage(self._run, Stage.RESOLVE)
        run_stage(self._run, Stage.PLAN)
        plan = self._run.planned
        _, _, step = folder.rpartition("_")
        write_standin(Path(folder).parent, int(step), plan.shapes, plan.partitioner)
        return len(plan.shapes.leaves)
