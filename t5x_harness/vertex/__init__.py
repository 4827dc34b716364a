"""T5X on Vertex AI: runs as jobs, from gin files to metrics.

For a notebook or a script::

    from t5x_harness.vertex import LaunchedJob, T5XJob, VertexTarget

    target = VertexTarget("my-project", "us-central1", "my-bucket", "us-docker.pkg.dev/my-project/t5x/t5x:1")
    job = T5XJob.from_gin("finetune.gin", run_mode="train", machine="v3-8", target=target)
    print(job.to_pb(), job.chip_hours)
    end = LaunchedJob.launch(job).follow(on_log=print)
    end.metrics.frame("inference_eval/")

Each name is imported from its module on first use. Google's libraries are imported when a job becomes a message or is
sent.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_harness.buckets.folders import Folder as Folder
    from t5x_harness.buckets.folders import StagedFile as StagedFile
    from t5x_harness.buckets.folders import StorageError as StorageError
    from t5x_harness.vertex.arguments import OverrideError as OverrideError
    from t5x_harness.vertex.arguments import RunMode as RunMode
    from t5x_harness.vertex.arguments import RunModeError as RunModeError
    from t5x_harness.vertex.container import ContainerJob as ContainerJob
    from t5x_harness.vertex.errors import VertexError as VertexError
    from t5x_harness.vertex.job import JobError as JobError
    from t5x_harness.vertex.job import T5XJob as T5XJob
    from t5x_harness.vertex.launching import DuplicateError as DuplicateError
    from t5x_harness.vertex.launching import LaunchedJob as LaunchedJob
    from t5x_harness.vertex.launching import RunEnd as RunEnd
    from t5x_harness.vertex.machine import ChipHours as ChipHours
    from t5x_harness.vertex.machine import ChipHoursError as ChipHoursError
    from t5x_harness.vertex.machine import Machine as Machine
    from t5x_harness.vertex.machine import MachineError as MachineError
    from t5x_harness.vertex.metrics import MetricsError as MetricsError
    from t5x_harness.vertex.metrics import RunMetrics as RunMetrics
    from t5x_harness.vertex.metrics import read_metrics as read_metrics
    from t5x_harness.vertex.modules import ClosureError as ClosureError
    from t5x_harness.vertex.submitted import JobOutcome as JobOutcome
    from t5x_harness.vertex.submitted import SubmittedJob as SubmittedJob
    from t5x_harness.vertex.target import DEFAULT_MAX_CHIP_HOURS as DEFAULT_MAX_CHIP_HOURS
    from t5x_harness.vertex.target import VertexTarget as VertexTarget
    from t5x_harness.vertex.target import VertexTargetError as VertexTargetError
    from t5x_harness.vertex.target import find_target as find_target
    from t5x_harness.vertex.tracking import create_tensorboard as create_tensorboard
    from t5x_harness.vertex.tracking import upload_events as upload_events
    from t5x_harness.vertex.waiting import WaitError as WaitError


def __getattr__(name: str) -> Any:
    from t5x_harness.system.lazy import public_name

    return public_name(__name__, __file__, name)


def __dir__() -> list[str]:
    return [*__getattr__("__all__")]
