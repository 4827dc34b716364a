"""Mutants that T5X itself judges, the same number of each class; benchmarks/mistakes.py has all of them."""

import os
import sys
from pathlib import Path

import pytest

MUTANTS = int(os.environ.get("T5X_HARNESS_MUTANTS", "204"))
"""How many are judged; the first ones are the same. CI, whose time is limited, names fewer."""

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.journey
def test_mistakes_that_no_list_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is that of the table in docs/fidelity.md."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import mistakes
    from campaign import table

    judgments = mistakes.judged(number=MUTANTS, seed=33, only="", folder=tmp_path, at_once=2)
    wrong = [f"{what}: {each.mutant.case} {each.mutant.what}" for what, each in table.survivors(judgments)]
    assert len(judgments) == MUTANTS
    assert [line for line in wrong if line.startswith(("own failure", "hang", "false alarm"))] == []
    wasted = [each for each in judgments if each.verdict.ending.is_failure]
    assert sum(each.is_placed for each in wasted) >= 0.95 * len(wasted), wrong
    classes = {each.mutant.group for each in wasted}
    assert classes == {"bindable", "checkpoint", "mesh", "statement", "task", "value"}
    for name in sorted(classes):
        of_class = [each for each in wasted if each.mutant.group == name]
        assert sum(each.is_caught for each in of_class) >= 0.98 * len(of_class), (name, wrong)
        assert sum(each.is_early for each in of_class) >= 0.9 * len(of_class), (name, wrong)
        assert sum(each.is_placed for each in of_class) >= 0.9 * len(of_class), (name, wrong)
