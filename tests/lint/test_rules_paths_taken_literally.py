"""Paths that look like something that nothing expands, or that lead into a checkpoint."""

from __future__ import annotations

import pytest
from linting import FINETUNE, PRETRAIN, RUN, Folder

FINE = RUN.replace(PRETRAIN, FINETUNE)


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("MODEL_DIR = '/data/$USER/run'", "GCS11", "has $USER in it, which is taken as it stands"),
        ("MODEL_DIR = '/data/${USER}/run'", "GCS11", "has ${USER} in it"),
        ("MODEL_DIR = '~/run'", "GCS11", "has ~ in it"),
        (r"MODEL_DIR = 'gs://bucket/runs\\first'", "GCS11", "has a backslash in it, which separates no folders"),
        ("INITIAL_CHECKPOINT_PATH = '/data/$USER/checkpoint_5'", "GCS11", "has $USER in it"),
        ("INITIAL_CHECKPOINT_PATH = 'gs://$BUCKET/t5/checkpoint_5'", "GCS10", "is in a bucket that nobody can have"),
        ("MODEL_DIR = 'gs://bucket/t5/checkpoint_5'", "CKP25", "is in a checkpoint: T5X goes on from nothing there"),
        ("MODEL_DIR = '/data/t5/checkpoint_5/again'", "CKP25", "is in a checkpoint"),
    ],
)
def test_a_path_that_is_not_what_it_looks_like(folder: Folder, line: str, code: str, part: str) -> None:
    finding = folder.only(f"{FINE}{line}\n", code)
    assert part in finding.message
    assert finding.location is not None


def test_other_paths_are_left_alone(folder: Folder) -> None:
    paths = "MODEL_DIR = 'gs://bucket/runs~1$/50%/checkpoints_5'\nINITIAL_CHECKPOINT_PATH = 'gs://b/t5/checkpoint_5'\n"
    assert not {"GCS10", "GCS11", "CKP25"} & {finding.code for finding in folder.findings(f"{FINE}{paths}")}
