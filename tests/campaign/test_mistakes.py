"""Mutants that T5X itself judges, by class: what the harness says of a part of them; benchmarks/mistakes.py has all."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.journey
@pytest.mark.parametrize("kind", ["value:", "bindable:", "statement:", "mesh:", "checkpoint:", "task:"])
def test_mistakes_that_no_list_has(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import mistakes
    from campaign import table

    judgments = mistakes.judged(number=34, seed=0, only=kind, folder=tmp_path, at_once=1)
    wrong = [f"{what}: {each.mutant.case} {each.mutant.what}" for what, each in table.survivors(judgments)]
    wasted = [each for each in judgments if each.verdict.ending.is_failure]
    assert len(judgments) == 34
    assert wasted
    assert [line for line in wrong if line.startswith(("own failure", "hang", "false alarm"))] == []
    assert sum(each.is_caught for each in wasted) >= 0.98 * len(wasted), wrong
    assert sum(each.is_early for each in wasted) >= 0.9 * len(wasted), wrong
    assert sum(each.is_placed for each in wasted) >= 0.95 * len(wasted), wrong
