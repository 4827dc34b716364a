"""T5X on Vertex AI: runs as jobs, from gin files to metrics.

For a notebook or a script::

    from t5x_harness.vertex import LaunchedJob, T5XJob, VertexTarget

    target = VertexTarget("my-project", "us-central1", "my-bucket", "us-docker.pkg.dev/my-project/t5x/t5x:1")
    job = T5XJob.from_gin("finetune.gin", run_mode="train", machine="v3-8", target=target)
    print(job.to_pb(), job.chip_hours)
    end = LaunchedJob.launch(job).follow(on_log=print)
    end.metrics.frame("inference_eval/")

Each name is imported from its module when it is first used, Google's libraries when a job is made a message or sent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_harness.vertex.chip_hours import DEFAULT_MAX_CHIP_HOURS, ChipHours, ChipHoursError
    from t5x_harness.vertex.container import ContainerJob
    from t5x_harness.vertex.errors import VertexError
    from t5x_harness.vertex.files import ClosureError, StagedFile
    from t5x_harness.vertex.job import JobError, T5XJob
    from t5x_harness.vertex.launching import DuplicateError, LaunchedJob, RunEnd
    from t5x_harness.vertex.machine import Machine, MachineError
    from t5x_harness.vertex.metrics import MetricsError, RunMetrics, read_metrics
    from t5x_harness.vertex.outcome import JobOutcome
    from t5x_harness.vertex.overrides import OverrideError
    from t5x_harness.vertex.run_mode import RunMode, RunModeError
    from t5x_harness.vertex.storage import Folder, StorageError
    from t5x_harness.vertex.submitted import SubmittedJob
    from t5x_harness.vertex.target import VertexTarget, VertexTargetError, find_target
    from t5x_harness.vertex.tensorboard import create_tensorboard, upload_events
    from t5x_harness.vertex.waiting import WaitError

__all__ = [
    "DEFAULT_MAX_CHIP_HOURS",
    "ChipHours",
    "ChipHoursError",
    "ClosureError",
    "ContainerJob",
    "DuplicateError",
    "Folder",
    "JobError",
    "JobOutcome",
    "LaunchedJob",
    "Machine",
    "MachineError",
    "MetricsError",
    "OverrideError",
    "RunEnd",
    "RunMetrics",
    "RunMode",
    "RunModeError",
    "StagedFile",
    "StorageError",
    "SubmittedJob",
    "T5XJob",
    "VertexError",
    "VertexTarget",
    "VertexTargetError",
    "WaitError",
    "create_tensorboard",
    "find_target",
    "read_metrics",
    "upload_events",
]

_NAMES = {
    "chip_hours": "DEFAULT_MAX_CHIP_HOURS ChipHours ChipHoursError",
    "errors": "VertexError",
    "files": "ClosureError StagedFile",
    "container": "ContainerJob",
    "job": "JobError T5XJob",
    "launching": "DuplicateError LaunchedJob RunEnd",
    "machine": "Machine MachineError",
    "metrics": "MetricsError RunMetrics read_metrics",
    "outcome": "JobOutcome",
    "overrides": "OverrideError",
    "run_mode": "RunMode RunModeError",
    "storage": "Folder StorageError",
    "submitted": "SubmittedJob",
    "target": "VertexTarget VertexTargetError find_target",
    "tensorboard": "create_tensorboard upload_events",
    "waiting": "WaitError",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
