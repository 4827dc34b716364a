"""Runs in separate processes, forked from one that has imported the stack."""

from t5x_harness.workers.errors import RunDied, RunRaised, RunTimedOut, WorkerError, ZygoteFailed
from t5x_harness.workers.in_process import InProcess
from t5x_harness.workers.progress import InlineProgress, ProgressPrinter
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import WARM_WORKER_UNUSED, WarmZygotes, Zygote

__all__ = [
    "WARM_WORKER_UNUSED",
    "InProcess",
    "InlineProgress",
    "ProgressPrinter",
    "RunDied",
    "RunProcess",
    "RunRaised",
    "RunTimedOut",
    "WarmZygotes",
    "WorkerError",
    "Zygote",
    "ZygoteFailed",
]
