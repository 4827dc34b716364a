"""The configuration of ``gcloud``, as a new machine has it."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.google.tpu.remote_shell import NEW_CONFIGURATION


def write_gcloud_configuration(folder: Path, project: str) -> None:
    """Writes what ``gcloud config set`` changes, into a folder that ``CLOUDSDK_CONFIG`` is to name."""
    configurations = folder / "configurations"
    configurations.mkdir(parents=True)
    (configurations / "config_default").write_text(f"{NEW_CONFIGURATION}[core]\nproject = {project}\n")
    (folder / "active_config").write_text("default")
