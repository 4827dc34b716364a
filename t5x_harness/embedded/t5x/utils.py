"""What train, eval and infer share: data and checkpoint configs, reading, restoring, schedules, inference, logging.

The definitions live in ``t5x._utils``, one concept a module; this is the module that configs and code name them by.
"""

from __future__ import annotations

# Not used here: type hints of the configs are resolved in the namespace of the module they are shown as.
from collections.abc import Mapping, Sequence  # noqa: F401
from typing import Any  # noqa: F401

import seqio
from t5x import checkpoints, partitioning
from t5x._public import publish
from t5x._utils.axis_names import flatten_dict_string_keys, override_params_axes_names
from t5x._utils.callables import (
    Array,
    DType,
    EvaluatorConstructor,
    GetDatasetCallable,
    GetEvalDatasetCallable,
    InferFnCallable,
    InferStepCallable,
    InferStepWithoutRngCallable,
    InferStepWithRngCallable,
    InitFnCallable,
    LearningRateCallable,
    PyTree,
    Shape,
)
from t5x._utils.checkpoint_configs import CheckpointConfig, RestoreCheckpointConfig, SaveCheckpointConfig
from t5x._utils.checkpoint_managers import create_checkpoint_manager_and_restore, create_orbax_checkpoint_manager
from t5x._utils.checkpoint_steps import find_first_checkpoint_step, find_next_checkpoint_step
from t5x._utils.dataset_config import DatasetConfig, import_module
from t5x._utils.datasets import get_dataset, get_dataset_inner, get_training_eval_datasets
from t5x._utils.inference import get_infer_fn
from t5x._utils.legacy_checkpoints import LegacyCheckpointer, LegacyCheckpointManager
from t5x._utils.model_info import log_model_info
from t5x._utils.multihost import multihost_assert_equal, run_main, set_hardware_rng_ops, sync_global_devices
from t5x._utils.restoring import get_fallback_state, get_first_valid_restore_config_and_paths, restore
from t5x._utils.schedule import create_learning_rate_scheduler
from t5x._utils.sharded_batches import (
    ShardedDatasetIterator,
    get_zeros_batch_like_dataset,
    get_zeros_batch_like_spec,
    prepare_train_iter,
)
from t5x._utils.train_state_initializer import TrainStateInitializer
from t5x._utils.vocabularies import get_vocabulary, round_vocab_size_to_multiple, verify_matching_vocabs

PartitionSpec = partitioning.PartitionSpec
TensorBoardLogger = seqio.TensorBoardLogger
get_local_data = checkpoints.get_local_data

__all__ = [
    "Array",
    "CheckpointConfig",
    "DType",
    "DatasetConfig",
    "EvaluatorConstructor",
    "GetDatasetCallable",
    "GetEvalDatasetCallable",
    "InferFnCallable",
    "InferStepCallable",
    "InferStepWithRngCallable",
    "InferStepWithoutRngCallable",
    "InitFnCallable",
    "LearningRateCallable",
    "LegacyCheckpointManager",
    "LegacyCheckpointer",
    "PartitionSpec",
    "PyTree",
    "RestoreCheckpointConfig",
    "SaveCheckpointConfig",
    "Shape",
    "ShardedDatasetIterator",
    "TensorBoardLogger",
    "TrainStateInitializer",
    "create_checkpoint_manager_and_restore",
    "create_learning_rate_scheduler",
    "create_orbax_checkpoint_manager",
    "find_first_checkpoint_step",
    "find_next_checkpoint_step",
    "flatten_dict_string_keys",
    "get_dataset",
    "get_dataset_inner",
    "get_fallback_state",
    "get_first_valid_restore_config_and_paths",
    "get_infer_fn",
    "get_training_eval_datasets",
    "get_vocabulary",
    "get_zeros_batch_like_dataset",
    "get_zeros_batch_like_spec",
    "import_module",
    "log_model_info",
    "multihost_assert_equal",
    "override_params_axes_names",
    "prepare_train_iter",
    "restore",
    "round_vocab_size_to_multiple",
    "run_main",
    "set_hardware_rng_ops",
    "sync_global_devices",
    "verify_matching_vocabs",
]

publish(__name__)
