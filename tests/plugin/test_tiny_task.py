"""``tiny_task`` refuses what would fail later, and writes a module that registers the task."""

from __future__ import annotations

from pathlib import Path

import pytest

ROWS = [{"inputs": "copy a", "targets": "a"}, {"inputs": "copy bb", "targets": "bb"}]


def test_lengths_cover_the_longest_text_and_its_end(tiny_task) -> None:
    task = tiny_task(ROWS)
    assert dict(task.task_feature_lengths) == {"inputs": len("copy bb") + 1, "targets": len("bb") + 1}
    assert Path(task.folder, f"{task.name}.py").is_file()
    assert f"MIXTURE_OR_TASK_NAME = {task.name!r}" in task.bindings


def test_equal_rows_make_the_same_task_and_others_another(tiny_task) -> None:
    assert tiny_task(ROWS).name == tiny_task(ROWS).name
    assert tiny_task(ROWS).name != tiny_task(ROWS[:1]).name


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "tiny_task needs at least one row"),
        ([{"inputs": "a"}], {}, "row 0 of tiny_task lacks targets; it has inputs"),
        (ROWS, {"vocabulary": "words"}, "vocabulary 'words' of tiny_task is not one of byte, sentencepiece"),
        (ROWS, {"metrics": ["rouge"]}, "metric 'rouge' of tiny_task is not one of accuracy, bleu"),
    ],
)
def test_mistakes_are_named(tiny_task, rows, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_task(rows, **options)
