"""What to save, what to restore: the values behind ``CHECKPOINT`` bindings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from t5x import checkpoints, state_utils

SAVE_DTYPES = (None, "float32", "bfloat16")
RESTORE_DTYPES = (None, "float32", "bfloat16", "float16")
RESTORE_MODES = ("specific", "latest", "all")


def _check_choice(binding: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{binding}` must be one of {allowed}; got {value!r}.")


@dataclasses.dataclass
class SaveCheckpointConfig:
    """How to save checkpoints.

    Attributes:
        dtype: Stores floating-point parameters as 'float32' or 'bfloat16'; None stores them as they are.
        period: Train steps between two checkpoints; None saves none but the last.
        checkpoint_steps: Further steps to save at, ascending.
        keep: How many of the newest checkpoints stay; None keeps all.
        keep_dataset_checkpoints: The same for the state of the input pipeline.
        save_dataset: Save the input pipeline's state too.
        checkpointer_cls: Makes the checkpointer that writes.
        state_transformation_fns: Applied in order to the state before it is written.
        checkpoint_manager_cls: Makes the manager when checkpoints are managed by orbax.

    Raises:
        ValueError: ``dtype`` is not one of those above.
    """

    dtype: str | None = "float32"
    period: int | None = None
    checkpoint_steps: Sequence[int] | None = None
    keep: int | None = None
    keep_dataset_checkpoints: int | None = None
    save_dataset: bool = False
    checkpointer_cls: checkpoints.CheckpointerConstructor = checkpoints.Checkpointer
    state_transformation_fns: Sequence[checkpoints.SaveStateTransformationFn] = dataclasses.field(default_factory=list)
    checkpoint_manager_cls: checkpoints.CheckpointManagerConstructor = checkpoints.OrbaxCheckpointManagerInterface

    def __post_init__(self) -> None:
        _check_choice("SaveCheckpointConfig.dtype", self.dtype, SAVE_DTYPES)


@dataclasses.dataclass
class RestoreCheckpointConfig:
    """Which checkpoint to restore, and how.

    Attributes:
        path: One path or several. With mode 'specific' a checkpoint, otherwise a folder that holds some.
        mode: 'specific' takes ``path`` itself, 'latest' the newest in the folder, 'all' each in turn.
        assignment_map: Pairs (regex of a model parameter's name, name in the checkpoint or None to leave it out), first
            match wins. It becomes the first of ``state_transformation_fns``.
        strict: The checkpoint must hold all of the optimizer state (TensorFlow checkpoints only).
        fallback_to_scratch: Initialise parameters that the checkpoint lacks after the transformations.
        dtype: Cast floating-point parameters to 'float32', 'bfloat16' or 'float16'; None keeps the stored one.
        restore_dataset: Restore the input pipeline's state; it must be there.
        checkpointer_cls: Makes the checkpointer that reads.
        state_transformation_fns: Applied in order to the state that was read.
        checkpoint_manager_cls: Makes the manager when checkpoints are managed by orbax.

    Raises:
        ValueError: ``mode`` or ``dtype`` is not one of those above.
    """

    path: str | Sequence[str]
    mode: str = "latest"
    assignment_map: Sequence[tuple[str, str | None]] | None = None
    strict: bool = True
    fallback_to_scratch: bool = False
    dtype: str | None = None
    restore_dataset: bool = False
    checkpointer_cls: checkpoints.CheckpointerConstructor = checkpoints.Checkpointer
    state_transformation_fns: Sequence[checkpoints.RestoreStateTransformationFn] = ()
    checkpoint_manager_cls: checkpoints.CheckpointManagerConstructor = checkpoints.OrbaxCheckpointManagerInterface

    def __post_init__(self) -> None:
        _check_choice("RestoreCheckpointConfig.mode", self.mode, RESTORE_MODES)
        _check_choice("RestoreCheckpointConfig.dtype", self.dtype, RESTORE_DTYPES)
        if self.assignment_map is not None:
            renaming = functools.partial(state_utils.apply_assignment_map, assignment_map=self.assignment_map)
            self.state_transformation_fns = (renaming, *self.state_transformation_fns)


@dataclasses.dataclass
class CheckpointConfig:
    """Both sides of checkpointing; None leaves a side out."""

    save: SaveCheckpointConfig | None = None
    restore: RestoreCheckpointConfig | None = None
