"""``gcloud storage`` and ``gsutil``, where they are installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

TOOLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "gcloud": {
        "make": ("gcloud", "storage", "buckets", "create"),
        "copy": ("gcloud", "storage", "cp"),
        "copy all": ("gcloud", "storage", "cp", "--recursive"),
    },
    "gsutil": {
        "make": ("gsutil", "mb"),
        "copy": ("gsutil", "cp"),
        "copy all": ("gsutil", "-m", "cp", "-r"),
    },
}
LARGE = bytes(range(256)) * 40_000  # more than eight megabytes: a resumable upload


@pytest.mark.parametrize("tool", TOOLS)
def test_files_there_and_back(
    tool: str, run_command: Callable[..., None], fake_gcs: Any, tmp_path: Path, read_back: Callable[..., None]
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")

    def run(what: str, *arguments: str) -> None:
        run_command(*TOOLS[tool][what], *arguments)

    bucket = f"by-{tool}"
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "large").write_bytes(LARGE)
    (tmp_path / "tree" / "sub" / "a b").write_text("small ü")
    run("make", f"gs://{bucket}")
    run("copy all", "tree", f"gs://{bucket}/")
    run("copy", f"gs://{bucket}/tree/sub/a b", f"gs://{bucket}/copied")
    small = "small ü".encode()
    read_back(bucket, {"tree/large": LARGE, "tree/sub/a b": small, "copied": small}, by=tool)
    run("copy", f"gs://{bucket}/tree/large", "back")
    assert (tmp_path / "back").read_bytes() == LARGE
