"""What a run clears from the folder in a bucket that it writes into."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.execute.sandbox import RunOutput, empty
from t5x_harness.variables import ROOT_VARIABLE


@pytest.mark.parametrize(
    ("restored", "left"),
    [
        ([], []),
        (["gs://mine/run/checkpoint_20/"], ["checkpoint_20"]),
        (["/gcs/mine/run/checkpoint_10"], ["checkpoint_10"]),
        (["gs://mine/run"], ["checkpoint_10", "checkpoint_20"]),
        (["gs://mine/other/checkpoint_20", "/here/checkpoint_10"], []),
    ],
)
def test_checkpoints_that_are_restored_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[str], left: list[str]
) -> None:
    """Evaluation may write beside the checkpoints that it evaluates."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    folder = tmp_path / "buckets" / "mine" / "run"
    for name in ("checkpoint_10/state", "checkpoint_20/state", "train", "inference_eval"):
        (folder / name).mkdir(parents=True)
    (folder / "notes.txt").touch()
    empty(RunOutput("gs://mine/run", folder, is_in_bucket=True), restored)
    assert sorted(path.name for path in folder.iterdir()) == [*left, "notes.txt"]
