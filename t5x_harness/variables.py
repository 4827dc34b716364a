"""The environment variables of the harness, one line each: what sets a process up as its parent asked."""

from __future__ import annotations

__all__ = [
    "BRIEF_VARIABLE",
    "CACHE_VARIABLE",
    "COMMIT_VARIABLE",
    "EXACT_NUMERICS_VARIABLE",
    "MODE_VARIABLE",
    "NETWORK_VARIABLE",
    "PATCH_VARIABLE",
    "POD_VARIABLE",
    "REQUIREMENTS_VARIABLE",
    "ROOT_VARIABLE",
    "RUNTIME_FOLDER_VARIABLE",
    "RUNTIME_VARIABLE",
    "SHRINK_VARIABLE",
    "SLICE_VARIABLE",
    "SOURCE_VARIABLE",
    "STANDINS_VARIABLE",
    "START_VARIABLE",
    "TPU_AOT_VARIABLE",
    "TPU_NUMERICS_VARIABLE",
    "TPU_VM_VARIABLE",
    "VERTEX_PREFIX",
    "WORKER_SOCKET_VARIABLE",
]

# Which T5X runs, and on what.
RUNTIME_VARIABLE = "T5X_HARNESS_RUNTIME"
"""The runtime that ``exec`` asked for: auto, installed or embedded."""
RUNTIME_FOLDER_VARIABLE = "T5X_HARNESS_RUNTIME_FOLDER"
"""The folder of the T5X that ``exec`` found, for processes whose import path has none; empty for none."""
SLICE_VARIABLE = "T5X_HARNESS_SLICE"
"""The slice that ``exec`` asked for, by name."""
POD_VARIABLE = "T5X_HARNESS_POD"
"""Set in a process that is one host of a slice; see :mod:`t5x_harness.slices.pod`."""
BRIEF_VARIABLE = "T5X_HARNESS_BRIEF"
"""Set in a process that makes a few steps; see :mod:`t5x_harness.upstream.short_run`."""
TPU_AOT_VARIABLE = "T5X_HARNESS_TPU_AOT"
"""How programs of jobs are compiled before they are sent; ``off`` for not at all."""
TPU_NUMERICS_VARIABLE = "T5X_HARNESS_TPU_NUMERICS"
"""Whether matrix products of float32 have a TPU's default precision: 1 or 0."""
EXACT_NUMERICS_VARIABLE = "T5X_HARNESS_EXACT_NUMERICS"
"""Whether steps are compiled as T5X compiles them, and not cheaply: 1 or 0."""
STANDINS_VARIABLE = "T5X_HARNESS_STANDINS"
"""Set in a process that makes stand-ins itself: the folder of the project with its declared rows."""
SHRINK_VARIABLE = "T5X_HARNESS_SHRINK"
"""Whether programs of T5X make their config small: 1 or 0."""
TPU_VM_VARIABLE = "T5X_HARNESS_TPU_VM"
"""Set in the processes of a TPU VM: its folder, by which they are found when it ends."""
START_VARIABLE = "T5X_HARNESS_START"
"""``MODULE:FUNCTION``, called without arguments at the start of each Python process."""
CACHE_VARIABLE = "T5X_HARNESS_CACHE_DIR"
"""The folder of JAX's compiled programs; empty for none."""
WORKER_SOCKET_VARIABLE = "T5X_HARNESS_WORKER"
"""The socket of the worker that ``t5x-harness warm`` keeps."""

# What it reaches.
NETWORK_VARIABLE = "T5X_HARNESS_NETWORK"
"""``forbid`` or ``allow``, for runs; ``allow`` where it is unset."""
ROOT_VARIABLE = "T5X_HARNESS_GCS_ROOT"
"""The root of the store that a run sees at ``gs://`` and ``/gcs``; unset or empty for none."""
SOURCE_VARIABLE = "T5X_HARNESS_GCS_SOURCE"
"""The user's folder that the store was filled from, a folder for each bucket; unset or empty for none."""
MODE_VARIABLE = "T5X_HARNESS_GCS_MODE"
"""How ``/gcs`` looks to a process: folder or fuse."""
PATCH_VARIABLE = "T5X_HARNESS_GCS_PATCH"
"""The root whose buckets Python sees at ``/gcs`` where nothing can be mounted there."""
VERTEX_PREFIX = "T5X_HARNESS_VERTEX_"
"""Begins the names of the settings of the Vertex AI that jobs are sent to: project, location, bucket and more."""

# What an image of the project's Dockerfile was built from.
COMMIT_VARIABLE = "T5X_HARNESS_IMAGE_T5X_COMMIT"
"""The commit of T5X."""
REQUIREMENTS_VARIABLE = "T5X_HARNESS_IMAGE_REQUIREMENTS"
"""The file of pinned requirements."""
