"""Which of the collected runs are begun while another one is reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from t5x_harness.plugin.gin_items import StageItem
from t5x_harness.plugin.session import SESSION
from t5x_harness.runs.pool import RunPool
from t5x_harness.runs.session import RunRegistry

Collect = Callable[..., Sequence[pytest.Item]]


@pytest.fixture
def collect(pytester: pytest.Pytester, folder: Path) -> Collect:
    """Collects configs ``a.gin`` to ``f.gin`` and a test, as far as they are named."""
    for name in "abcdef":
        shutil.copy(folder / "infer.gin", folder / f"{name}.gin")
    pytester.makepyfile(test_own="def test_own(): pass")

    def call(*arguments: str) -> Sequence[pytest.Item]:
        items, _ = pytester.inline_genitems("--t5x-runtime=embedded", *arguments)
        return items[0].session.items  # without the deselected ones

    return call


def runs(items: Sequence[pytest.Item], index: int = 0, ahead: int | None = 1) -> list[tuple[str, str]]:
    """The runs that are begun when it is an item's turn, each with the first letters of its stages."""
    item = items[index]
    assert isinstance(item, StageItem)
    session = item.config.stash[SESSION]
    pool = RunPool(timeout=None, parallel=session.runs_at_once if ahead is None else 1 + ahead)
    found = RunRegistry(pool, Path, lambda event: None).next_runs(item.spec, item.pending_runs)
    return [(run.spec.name, "".join(stage[0] for stage in run.stages)) for run in found]


def test_the_next_runs_are_begun_with_all_their_selected_stages(collect: Collect) -> None:
    items = collect("a.gin", "b.gin", "c.gin", "d.gin", "e.gin", "f.gin")
    assert runs(items) == [("a", "lrpi"), ("b", "lrpi"), ("c", "lrpi"), ("d", "lrpi")]  # two at once, two to follow
    assert runs(items, 4, ahead=0) == []
    assert [name for name, _ in runs(items, 16)] == ["e", "f"]
    assert runs(collect("-k", "plan", "a.gin", "b.gin")) == [("a", "p"), ("b", "p")]
    assert runs(collect("a.gin", "b.gin::lint")) == [("a", "lrpi"), ("b", "l")]


def test_none_is_begun_beyond_a_test_or_after_its_own_first_stage(collect: Collect) -> None:
    items = collect("a.gin", "b.gin", "test_own.py", "c.gin")
    assert [name for name, _ in runs(items)] == ["a", "b"]
    assert [name for name, _ in runs(items, 1)] == ["b"]
    assert runs(items, 9) == [("c", "lrpi")]


def test_a_run_with_a_skipped_stage_waits_for_its_turn(collect: Collect, folder: Path) -> None:
    (folder / "conftest.py").write_text(
        "import pytest\ndef pytest_collection_modifyitems(items):\n    items[4].add_marker(pytest.mark.skip)\n"
    )
    assert [name for name, _ in runs(collect("a.gin", "b.gin", "c.gin"))] == ["a", "c"]


@pytest.mark.parametrize("option", ["--t5x-in-process", "--t5x-full-size", "--t5x-ahead=0"])
def test_runs_come_one_after_the_other_where_they_must(collect: Collect, option: str) -> None:
    assert runs(collect(option, "a.gin", "b.gin"), ahead=None) == []


def test_a_number_of_runs_counts_more_than_their_size(collect: Collect) -> None:
    items = collect("--t5x-full-size", "-o", "t5x_ahead=1", "a.gin", "b.gin")
    assert [name for name, _ in runs(items, ahead=None)] == ["a", "b"]
