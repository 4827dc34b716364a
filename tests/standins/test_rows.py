"""Rows that a user declares: where they are read from, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t5x_harness.standins.rows import SampleError, Samples, declared, read_rows


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("a.jsonl", '{"a": 1, "b": {"c": ["x"]}}\n\n{"a": 2, "b": {"c": []}}\n',
         [{"a": 1, "b": {"c": ["x"]}}, {"a": 2, "b": {"c": []}}]),
        ("a.tsv", 'de\ten\nein "Haus\ta house\n', [{"de": 'ein "Haus', "en": "a house"}]),
        ("a.csv", 'de,en\n"ein, zwei",one\n', [{"de": "ein, zwei", "en": "one"}]),
        ("a.txt", "first\nsecond\n", [{"text": "first"}, {"text": "second"}]),
    ],
)  # fmt: skip
def test_files_by_their_ending(tmp_path: Path, name: str, text: str, rows: list[Any]):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_rows(tmp_path / name) == rows


def test_rows_of_a_split_come_before_those_of_every_split(tmp_path: Path):
    (tmp_path / "train.txt").write_text("from a file\n", encoding="utf-8")
    samples = declared("mine", {"train": "train.txt", "*": [{"text": "inline"}]}, tmp_path)
    assert samples.rows("train") == [{"text": "from a file"}]
    assert samples.rows("test") == [{"text": "inline"}]
    assert declared("mine", {"train": "train.txt"}, tmp_path).rows("test") is None
    assert Samples.from_text(samples.to_text()) == samples


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "mine has no rows"),
        ({}, "mine has no rows"),
        ({"test": []}, "mine, split test has no rows"),
        (3, "mine: give a list of rows (tables of columns), or the name of a file, not 3"),
        (["text"], "mine: give a list of rows (tables of columns), or the name of a file, not ['text']"),
        ([{"a": 1}, {"b": 1}], "mine: row 1 lacks a, which row 0 has"),
        ([{"a": 1}, {"a": 1, "c": 1, "b": 1}], "mine: row 1 has b, c, which row 0 lacks"),
        ("none.jsonl", "none.jsonl cannot be read: "),
        ("rows.parquet", "rows.parquet: rows are read from .jsonl, .tsv, .csv and .txt files"),
        ("broken.jsonl", "broken.jsonl:2: no JSON: "),
        ("list.jsonl", "list.jsonl:1: one JSON object a line, not [1, 2]"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, value: Any, message: str):
    (tmp_path / "rows.parquet").touch()
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": \n', encoding="utf-8")
    (tmp_path / "list.jsonl").write_text("[1, 2]\n", encoding="utf-8")
    with pytest.raises(SampleError) as caught:
        declared("mine", value, tmp_path)
    assert message in str(caught.value)


def test_fixtures_collect_rows_for_the_runs_of_a_test(t5x_samples, sample_rows, fake_hf_dataset):
    sample_rows("mine", [{"text": "a"}])
    sample_rows("mine", [{"text": "b"}], split="test")
    fake_hf_dataset("allenai/c4", "en", rows=[{"text": "c"}], split="train")
    fake_hf_dataset("imdb", rows=[{"text": "d"}])
    assert t5x_samples == {
        "mine": {"*": [{"text": "a"}], "test": [{"text": "b"}]},
        "hf:allenai/c4:en": {"train": [{"text": "c"}]},
        "hf:imdb": {"*": [{"text": "d"}]},
    }


def test_fixtures_refuse_rows_that_do_not_go_together(sample_rows):
    with pytest.raises(ValueError, match="mine: row 1 lacks a, which row 0 has"):
        sample_rows("mine", [{"a": 1}, {"b": 1}])
