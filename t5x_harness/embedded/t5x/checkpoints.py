"""Checkpoints: in orbax layout, which T5X writes by default, and in T5X's own, which public models come in."""

from __future__ import annotations

from t5x._checkpoints.arrays import (
    ParameterInfo,
    fake_param_info,
    register_ts_spec_for_serialization,
)
from t5x._checkpoints.best import SaveBestCheckpointer
from t5x._checkpoints.lazy import LazyArray, LazyAwaitableArray, LazyThreadPoolArray
from t5x._checkpoints.legacy import VERSION, Checkpointer
from t5x._checkpoints.legacy_file import find_checkpoint
from t5x._checkpoints.load import load_t5x_checkpoint
from t5x._checkpoints.metrics import populate_metrics_for_steps
from t5x._checkpoints.orbax_items import DatasetArgs, DatasetCheckpointHandler
from t5x._checkpoints.orbax_manager import OrbaxCheckpointManagerInterface
from t5x._checkpoints.placing import get_local_data
from t5x._checkpoints.transformations import (
    CheckpointerConstructor,
    CheckpointManagerConstructor,
    RestoreStateTransformationFn,
    SaveStateTransformationFn,
)
from t5x.checkpoints_utils import (
    all_dataset_checkpoint_steps,
    all_steps,
    get_checkpoint_dir,
    get_checkpoint_prefix,
    get_step_from_checkpoint_dir,
    latest_step,
)

__all__ = [
    "VERSION",
    "CheckpointManagerConstructor",
    "Checkpointer",
    "CheckpointerConstructor",
    "DatasetArgs",
    "DatasetCheckpointHandler",
    "LazyArray",
    "LazyAwaitableArray",
    "LazyThreadPoolArray",
    "OrbaxCheckpointManagerInterface",
    "ParameterInfo",
    "RestoreStateTransformationFn",
    "SaveBestCheckpointer",
    "SaveStateTransformationFn",
    "all_dataset_checkpoint_steps",
    "all_steps",
    "fake_param_info",
    "find_checkpoint",
    "get_checkpoint_dir",
    "get_checkpoint_prefix",
    "get_local_data",
    "get_step_from_checkpoint_dir",
    "latest_step",
    "load_t5x_checkpoint",
    "populate_metrics_for_steps",
    "register_ts_spec_for_serialization",
]
