"""The shipped data is what the script makes, and is not edited by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.sample_tasks import make_data, rivers


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (make_data.make_text, ["rivers-train.txt", "rivers-validation.txt"]),
        (make_data.make_languages, ["languages-train.tsv", "languages-validation.tsv"]),
        (make_data.make_questions, ["rivers-train.tfrecord", "rivers-validation.tfrecord"]),
    ],
)
def test_shipped_files_equal_made_files(make, names: list[str], tmp_path: Path) -> None:
    make(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (rivers.DATA / name).read_bytes(), f"{name}: run make_data"
