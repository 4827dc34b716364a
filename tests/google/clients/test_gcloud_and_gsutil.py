"""``gcloud storage`` and ``gsutil``, if they are installed."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import asking
import pytest

TOOLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "gcloud": {
        "make": ("gcloud", "storage", "buckets", "create"),
        "copy": ("gcloud", "storage", "cp"),
        "copy all": ("gcloud", "storage", "cp", "--recursive"),
        "not emulated": ("gcloud", "storage", "managed-folders", "list"),
    },
    "gsutil": {
        "make": ("gsutil", "mb"),
        "copy": ("gsutil", "cp"),
        "copy all": ("gsutil", "-m", "cp", "-r"),
        "not emulated": ("gsutil", "iam", "get"),
    },
}
LARGE = bytes(range(256)) * 40_000  # more than eight megabytes: a resumable upload


@pytest.mark.usefixtures("fake_gcs")
@pytest.mark.journey
@pytest.mark.parametrize("tool", TOOLS)
def test_files_there_and_back(
    tool: str, run_command: Callable[..., None], tmp_path: Path, read_back: Callable[..., None]
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


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_not_emulated_is_asked_for_once(
    tool: str, client_environment: Mapping[str, str], fake_gcs: Any, tmp_path: Path
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    fake_gcs.put(fake_gcs.bucket("data"), {"a": "x"})
    done = asking.run_command(*TOOLS[tool]["not emulated"], "gs://data/a", env=client_environment, cwd=tmp_path)
    assert done.returncode == 1
    what = {"gcloud": "managed folders", "gsutil": "IAM policies"}[tool]
    assert f"t5x-harness does not emulate {what}; buckets, objects," in done.stderr
    assert [request.status for request in fake_gcs.requests if request.status != 200] == [403]
