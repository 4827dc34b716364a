"""Writes a config's full-size checkpoints as a run's own checkpointer would, in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import t5x_in_use

from t5x_harness.execute.execution import Execution, open_execution
from t5x_harness.execute.process import run_stage
from t5x_harness.spec import RunSpec, Stage
from t5x_harness.workers.zygote import Zygote


def write_checkpoint(zygote: Zygote, folder: Path, name: str, config: str) -> None:
    """Writes a checkpoint of a config as orbax does.

    Args:
      zygote: where its process comes from.
      folder: the folder with the config and its modules.
      name: the checkpoint's folder in it, such as ``run/checkpoint_1000``.
      config: the config's file in it.
    """
    spec = RunSpec((config,), runtime=t5x_in_use.name, python_path=(str(folder),), cwd=str(folder))
    writer = zygote.start(
        "checkpoint_writer:open_writer",
        {"spec": spec.to_json(), "workspace": str(folder / "writer")},
        log=folder / "writer.log",
        cwd=folder,
        python_path=(str(Path(__file__).parent), str(folder)),
    )
    with writer:
        place = folder / name
        step = int(name.rpartition("_")[2])
        assert writer.call("write", folders={"orbax": str(place.parent)}, step=step, timeout=120) > 0


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
