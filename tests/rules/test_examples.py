"""Each rule of resolve, plan and aot finds its bad example, at the line at fault, and nothing in its good one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from t5x_harness.aot import libtpu
from t5x_harness.findings.rule import Example, Rule
from t5x_harness.rulebook.rules import all_rules
from t5x_harness.spec import Finding, Outcome, Severity, Stage

if TYPE_CHECKING:
    from conftest import Examined

RULES = (*all_rules(Stage.RESOLVE, Stage.PLAN), *(all_rules(Stage.AOT) if libtpu.is_installed() else ()))


def _line(finding: Finding, example: Example, folder: Path) -> str:
    """Returns the text of the user's line that a finding points to; for T5X's files, the line that includes them."""
    assert finding.location is not None, f"no line is at fault, but the example names {example.at!r}: {finding}"
    steps = [
        at for at in (*finding.location.included_from, finding.location) if (folder / at.file).is_relative_to(folder)
    ]
    lines = (folder / steps[-1].file).read_text(encoding="utf-8").splitlines()
    return lines[steps[-1].line - 1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.stage}-{rule.code}")
def test_a_rule_finds_its_bad_example(rule: Rule, examine: Examined, tmp_path: Path) -> None:
    result = examine(rule.bad, rule.stage)
    found = [f for f in result.findings if f.code == rule.code]
    assert found, result
    assert result.stage is rule.stage
    if rule.bad.at:
        assert _line(found[0], rule.bad, tmp_path).startswith(rule.bad.at)
    assert found[0].fix
    expected = Outcome.FAILED if found[0].severity is Severity.ERROR else Outcome.PASSED
    assert result.outcome is expected


def _sharing_their_good_example() -> list[list[Rule]]:
    """Returns the rules, grouped by their good example, which runs once for each group."""
    together: dict[tuple[Stage, str], list[Rule]] = {}
    for rule in RULES:
        together.setdefault((rule.stage, repr(rule.good)), []).append(rule)
    return list(together.values())


@pytest.mark.parametrize("rules", _sharing_their_good_example(), ids=lambda rules: "-".join(r.code for r in rules))
def test_rules_leave_their_good_example_alone(rules: list[Rule], examine: Examined) -> None:
    result = examine(rules[0].good, rules[0].stage)
    assert not {rule.code for rule in rules} & {f.code for f in result.findings}, result.findings
    assert result.outcome is Outcome.PASSED
    assert result.stage is rules[0].stage
