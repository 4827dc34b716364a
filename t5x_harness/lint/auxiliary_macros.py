"""The macros that the controller of auxiliary jobs replaces in the config of each job."""

from __future__ import annotations

CHECKPOINT_MACROS = ("INITIAL_CHECKPOINT_PATH", "CHECKPOINT_PATH")
"""The macros that name the checkpoint to begin with in T5X's configs: for training, and for all else."""

REPLACED_MACROS = (
    "MODEL_DIR",
    "EVAL_OUTPUT_DIR",
    "INFER_OUTPUT_DIR",
    "MIXTURE_OR_TASK_NAME",
    *CHECKPOINT_MACROS,
    "TRAIN_STEPS",
)
"""All macros whose values come from the controller."""
