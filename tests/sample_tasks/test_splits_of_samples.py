"""A part of a split: TFDS reads it, and what cannot says so instead of reading something else."""

from __future__ import annotations

import pytest
import seqio

from t5x_harness.sample_tasks import tasks  # noqa: F401 - registers


def count(task: str, split: str) -> int:
    return sum(1 for _ in seqio.TaskRegistry.get(task).source.get_dataset(split, shuffle=False))


def test_a_part_of_a_tfds_split_is_read() -> None:
    assert count("sample_sums", "validation[:8]") == 8


@pytest.mark.parametrize("task", ["sample_translate", "sample_stream"])
def test_a_part_of_a_split_is_refused_by_functions(task: str) -> None:
    message = r"there is no split 'validation\[:8\]', only 'train' and 'validation', and no parts of them"
    with pytest.raises(ValueError, match=message):
        count(task, "validation[:8]")


@pytest.mark.parametrize("task", ["sample_answer", "sample_classify", "sample_span_corruption"])
def test_a_part_of_a_split_is_refused_by_files(task: str) -> None:
    with pytest.raises(KeyError, match=r"validation\[:8\]"):
        count(task, "validation[:8]")
