"""Writes a config's full-size checkpoints as a run's own checkpointer would, in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.execute.execution import Execution, open_execution
from t5x_harness.execute.process import run_stage
from t5x_harness.spec import Stage


def open_writer(argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> Writer:
    """Opens a writer; takes the arguments of :func:`open_execution`."""
    return Writer(open_execution(argument, progress))


class Writer:
    """A run that only writes checkpoints."""

    def __init__(self, run: Execution) -> None:
        self._run = run

    def write(self, folders: Mapping[str, str], step: int) -> int:
        """Writes a checkpoint below each folder in the layout that is its key; returns the number of arrays."""
        from t5x_harness.execute.starting_checkpoint import write_standin
        from t5x_harness.standins.checkpoints import CheckpointKind

        run_stage(self._run, Stage.RESOLVE)
        run_stage(self._run, Stage.PLAN)
        plan = self._run.planned
        assert plan is not None
        for layout, folder in folders.items():
            write_standin(folder, step, plan.shapes, plan.partitioner, kind=CheckpointKind(layout))
        return len(plan.shapes.leaves)
