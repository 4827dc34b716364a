"""What users may pass in: functions that change a state on its way, and constructors of checkpointers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import gin
import numpy as np
from t5x import partitioning
from t5x import train_state as train_state_lib
from t5x._shown_as import shown_as

if TYPE_CHECKING:
    from t5x.checkpoints import Checkpointer, OrbaxCheckpointManagerInterface


@shown_as("t5x.checkpoints")
class SaveStateTransformationFn(Protocol):
    """Changes a state before it is saved."""

    def __call__(self, state_dict: Any, parameter_infos: Any) -> tuple[Any, Any]:
        """Returns the changed state and what is known of how each of its leaves is stored.

        Args:
            state_dict: the state as nested dicts.
            parameter_infos: a tree like it; change both alike.
        """


@shown_as("t5x.checkpoints")
class RestoreStateTransformationFn(Protocol):
    """Changes a state after it is read and before it is put into the model's."""

    def __call__(self, state_dict: Any, target_state_dict: Any, *, is_resuming: bool = False) -> Any:
        """Returns the changed state.

        Args:
            state_dict: the checkpoint as nested dicts. Its leaves describe stored arrays that are not read yet.
            target_state_dict: the state of the model.
            is_resuming: the checkpoint is this run's own, so that the change was made before.
        """


@shown_as("t5x.checkpoints")
class CheckpointerConstructor(Protocol):
    """Makes a :class:`Checkpointer`; gin configurations pass it with some arguments bound."""

    def __call__(
        self,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        checkpoints_dir: str,
        dataset_iterator: Any = None,
        *,
        keep: int | None = None,
        save_dtype: Any = np.float32,
        restore_dtype: Any = None,
        keep_dataset_checkpoints: int | None = None,
    ) -> Checkpointer:
        """Returns a checkpointer; the arguments are those of :class:`Checkpointer`."""


@gin.configurable
@shown_as("t5x.checkpoints")
class CheckpointManagerConstructor(Protocol):
    """Makes an :class:`OrbaxCheckpointManagerInterface`; gin configurations pass it with some arguments bound."""

    def __call__(
        self,
        directory: str,
        train_state: train_state_lib.TrainState,
        partitioner: partitioning.BasePartitioner,
        dataset_iterator: Any = None,
        save_dtype: Any = None,
        restore_dtype: Any = None,
        keep: int | None = None,
        period: int | None = None,
        force_keep_period: int | None = None,
        checkpoint_steps: Sequence[int] | None = None,
    ) -> OrbaxCheckpointManagerInterface:
        """Returns a manager; the arguments are those of :class:`OrbaxCheckpointManagerInterface`."""


def transform_for_save(
    state_dict: Mapping[str, Any], parameter_infos: Mapping[str, Any], functions: Sequence[SaveStateTransformationFn]
) -> tuple[Any, Any]:
    """Applies the functions in order to a state and to what is known of its leaves."""
    for function in functions:
        state_dict, parameter_infos = function(state_dict, parameter_infos)
    return state_dict, parameter_infos


def transform_for_restore(
    stored: Mapping[str, Any], target: Mapping[str, Any], functions: Sequence[RestoreStateTransformationFn]
) -> Any:
    """Applies the functions in order to what a checkpoint holds."""
    for function in functions:
        stored = function(stored, target)
    return stored
