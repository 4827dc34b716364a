"""``/gcs``: Cloud Storage as a folder, the same files as ``gs://``, for commands and for forked runs.

``/gcs/<bucket>/<object>`` is the store's file ``<root>/buckets/<bucket>/<object>``. :func:`probe` finds out how this
machine can show it, :func:`launched` and :func:`command_prefix` are for commands, :func:`enter` is for a process that
was just forked, and :func:`rewrite` changes texts and words on machines that allow no mounts.
"""

from __future__ import annotations

from t5x_harness.google.gcs_mount.mount import MountMode, Way, enter
from t5x_harness.google.gcs_mount.namespace import NamespaceRefused, buckets_folder
from t5x_harness.google.gcs_mount.probing import Mount, command_prefix, launched, probe, refusal, rewrite

__all__ = [
    "Mount",
    "MountMode",
    "NamespaceRefused",
    "Way",
    "buckets_folder",
    "command_prefix",
    "enter",
    "launched",
    "probe",
    "refusal",
    "rewrite",
]
