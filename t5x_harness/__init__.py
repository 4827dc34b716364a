"""A pytest plugin and local emulation harness for people who train with T5X.

The names in ``__all__`` are public, as :mod:`t5x_harness.vertex` is; docs/reference.md lists them. Each is imported
from its module when it is first used, so ``import t5x_harness`` is light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_harness.fixtures.runs import T5XRun
    from t5x_harness.fixtures.samples import FakeHuggingFaceDataset, SampleRows
    from t5x_harness.fixtures.storage_fuse import FusePath
    from t5x_harness.fixtures.storage_s3 import FakeS3
    from t5x_harness.fixtures.tasks import MakeTinyTask, TinyTask
    from t5x_harness.google.gcs import FakeGcs
    from t5x_harness.google.gcs_mount import launched
    from t5x_harness.google.session import GoogleSession
    from t5x_harness.google.vertex.settings import VertexOptions
    from t5x_harness.google.vertex_admin import FakeVertex
    from t5x_harness.sample_tasks import CONFIGS
    from t5x_harness.spec import (
        Assignment,
        BoundValue,
        Change,
        Changed,
        Checkpoint,
        Edit,
        FactTable,
        Finding,
        GcsPaths,
        Location,
        Measure,
        Mode,
        Outcome,
        Reason,
        RunResult,
        RunSpec,
        RuntimeChoice,
        Severity,
        Stage,
        StageResult,
        StandInPolicy,
    )
    from t5x_harness.vertex.target import VertexTarget

__version__ = "0.1.0"

__all__ = [
    "CONFIGS",
    "Assignment",
    "BoundValue",
    "Change",
    "Changed",
    "Checkpoint",
    "Edit",
    "FactTable",
    "FakeGcs",
    "FakeHuggingFaceDataset",
    "FakeS3",
    "FakeVertex",
    "Finding",
    "FusePath",
    "GcsPaths",
    "GoogleSession",
    "Location",
    "MakeTinyTask",
    "Measure",
    "Mode",
    "Outcome",
    "Reason",
    "RunResult",
    "RunSpec",
    "RuntimeChoice",
    "SampleRows",
    "Severity",
    "Stage",
    "StageResult",
    "StandInPolicy",
    "T5XRun",
    "TinyTask",
    "VertexOptions",
    "VertexTarget",
    "launched",
]

_NAMES = {
    "t5x_harness.fixtures.runs": "T5XRun",
    "t5x_harness.fixtures.samples": "FakeHuggingFaceDataset SampleRows",
    "t5x_harness.fixtures.storage_fuse": "FusePath",
    "t5x_harness.fixtures.storage_s3": "FakeS3",
    "t5x_harness.fixtures.tasks": "MakeTinyTask TinyTask",
    "t5x_harness.google.gcs_mount": "launched",
    "t5x_harness.google.gcs": "FakeGcs",
    "t5x_harness.google.session": "GoogleSession",
    "t5x_harness.google.vertex.settings": "VertexOptions",
    "t5x_harness.google.vertex_admin": "FakeVertex",
    "t5x_harness.sample_tasks": "CONFIGS",
    "t5x_harness.vertex.target": "VertexTarget",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "t5x_harness.spec")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
