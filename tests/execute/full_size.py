"""Writes a config's full-size checkpoints, as its user has them, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.execute.session import Session, open_session


def open_writer(argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> Writer:
    """Takes what :func:`open_session` takes."""
    return Writer(open_session(argument, progress))


class Writer:
    """A run of which only its checkpoints are wanted."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def write(self, folders: Mapping[str, str], step: int) -> int:
        """Writes a checkpoint below each folder, in the layout that is its key; gives the number of arrays."""
        from t5x_harness.execute.checkpoint_standin import write_standin
        from t5x_harness.standins.checkpoints import CheckpointKind

        self._session.resolve()
        self._session.plan()
        plan = self._session._plan
        for layout, folder in folders.items():
            write_standin(folder, step, plan.shapes, plan.partitioner, kind=CheckpointKind(layout))
        return len(plan.shapes.leaves)
