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
        ("MODEL_DIR = 'gs://bucket/{date}/run'", "GCS11", "has {date} in it, which is taken as it stands"),
        ("MODEL_DIR = '/data/<your name>/run'", "GCS11", "has <your name> in it"),
        ("""MODEL_DIR = '"gs://bucket/run"'""", "GCS11", "has quotes in it, which become a part of the name"),
        ("MODEL_DIR = 'gs://bucket/run '", "GCS11", "begins or ends with a space, which becomes a part of the name"),
        ("MODEL_DIR = 'gs://bucket/ru\u200bn'", "GCS11", "has U+200B (ZERO WIDTH SPACE) in it, which does not show"),
        ("MODEL_DIR = 'gs://bucket/a\u00a0run'", "GCS11", "has U+00A0 (NO-BREAK SPACE) in it"),
        (r"MODEL_DIR = 'gs://bucket/run\n'", "GCS11", "has U+000A (a control character) in it"),
        ("MODEL_DIR = 'https://storage.googleapis.com/bucket/run'", "GCS11", "is an address of the Web, where T5X"),
        ("INITIAL_CHECKPOINT_PATH = '/data/$USER/checkpoint_5'", "GCS11", "has $USER in it"),
        (
            "INITIAL_CHECKPOINT_PATH = 'gs://$BUCKET/t5/checkpoint_5'",
            "GCS10",
            "is in a bucket whose name Cloud Storage refuses",
        ),
        ("MODEL_DIR = 'gs://bucket/t5/checkpoint_5'", "CKP25", "is in a checkpoint: T5X goes on from nothing there"),
        ("MODEL_DIR = '/data/t5/checkpoint_5/again'", "CKP25", "is in a checkpoint"),
    ],
)
def test_a_path_that_is_not_what_it_looks_like(folder: Folder, line: str, code: str, part: str) -> None:
    finding = folder.only(f"{FINE}{line}\n", code)
    assert part in finding.message
    assert finding.location is not None


def test_other_paths_are_left_alone(folder: Folder) -> None:
    paths = "MODEL_DIR = \"gs://bucket/runs~1$/50%/my run's/checkpoints_5\"\nINITIAL_CHECKPOINT_PATH = 'gs://b/t5/checkpoint_5'\n"
    assert not {"GCS10", "GCS11", "CKP25"} & {finding.code for finding in folder.findings(f"{FINE}{paths}")}
