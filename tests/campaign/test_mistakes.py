"""Mutants that T5X itself judges, the same number of each class; benchmarks/mistakes.py has all of them."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.journey
def test_mistakes_that_no_list_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is that of the table in docs/fidelity.md."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import mistakes
    from campaign import table

    judgments = mistakes.judged(number=72, seed=33, only="", folder=tmp_path, at_once=2)
    wrong = [f"{what}: {each.mutant.case} {each.mutant.what}" for what, each in table.survivors(judgments)]
    assert len(judgments) == 72
    assert [line for line in wrong if line.startswith(("own failure", "hang", "false alarm"))] == []
    wasted = [each for each in judgments if each.verdict.ending.is_failure]
    assert sum(each.is_placed for each in wasted) >= 0.95 * len(wasted), wrong
    classes = {each.mutant.group for each in wasted}
    assert classes == {"bindable", "checkpoint", "mesh", "statement", "task", "value"}
    for name in sorted(classes):
        of_class = [each for each in wasted if each.mutant.group == name]
        assert sum(each.is_caught for each in of_class) >= 0.98 * len(of_class), (name, wrong)
        # One in ten may be late or at another line, and one in a class of fewer.
        allowed = max(1, len(of_class) // 10)
        assert sum(not each.is_early for each in of_class) <= allowed, (name, wrong)
        assert sum(not each.is_placed for each in of_class) <= allowed, (name, wrong)
