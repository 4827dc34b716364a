"""T5X on Vertex AI: runs as jobs, from gin files to metrics.

For a notebook or a script::

    from t5x_harness.vertex import T5XJob, VertexTarget

    target = VertexTarget("my-project", "us-central1", "my-bucket", "us-docker.pkg.dev/my-project/t5x/t5x:1")
    job = T5XJob.from_gin("finetune.gin", run_mode="train", machine="v3-8", target=target)
    print(job.to_pb(), job.chip_hours)

Each name is imported from its module when it is first used, Google's libraries when a job is made a message or sent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_harness.vertex.chip_hours import DEFAULT_MAX_CHIP_HOURS, ChipHours, ChipHoursError
    from t5x_harness.vertex.files import ClosureError, StagedFile
    from t5x_harness.vertex.job import ContainerJob, JobError, T5XJob
    from t5x_harness.vertex.machine import Machine, MachineError
    from t5x_harness.vertex.overrides import OverrideError
    from t5x_harness.vertex.run_mode import RunMode, RunModeError
    from t5x_harness.vertex.storage import Folder, StorageError
    from t5x_harness.vertex.target import VertexTarget, VertexTargetError, find_target

__all__ = [
    "DEFAULT_MAX_CHIP_HOURS",
    "ChipHours",
    "ChipHoursError",
    "ClosureError",
    "ContainerJob",
    "Folder",
    "JobError",
    "Machine",
    "MachineError",
    "OverrideError",
    "RunMode",
    "RunModeError",
    "StagedFile",
    "StorageError",
    "T5XJob",
    "VertexTarget",
    "VertexTargetError",
    "find_target",
]

_NAMES = {
    "chip_hours": "DEFAULT_MAX_CHIP_HOURS ChipHours ChipHoursError",
    "files": "ClosureError StagedFile",
    "job": "ContainerJob JobError T5XJob",
    "machine": "Machine MachineError",
    "overrides": "OverrideError",
    "run_mode": "RunMode RunModeError",
    "storage": "Folder StorageError",
    "target": "VertexTarget VertexTargetError find_target",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
