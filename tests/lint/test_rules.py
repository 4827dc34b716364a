"""Every rule registers itself, explains itself, finds its own bad example and leaves its good one alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from linting import Folder

from t5x_harness.lint.rule import Context, Example, Rule, all_rules
from t5x_harness.spec import Finding


def _codes(folder: Folder, example: Example) -> set[str]:
    folder.write(example.files)
    return {f.code for f in folder.findings(example.gin, bindings=example.bindings, mode=example.mode)}


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_finds_its_bad_example_and_not_its_good_one(folder: Folder, rule: type[Rule]) -> None:
    assert rule.code in _codes(folder, rule.bad)
    assert rule.code not in _codes(folder, rule.good)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_explains_itself(rule: type[Rule]) -> None:
    assert re.fullmatch(r"[A-Z]{3}\d\d", rule.code)
    assert rule.title
    assert not rule.title.endswith(".")
    assert rule.why.endswith((".", "`.", "`"))


def test_the_rules_of_this_stage_are_there() -> None:
    expected = "GIN01 GIN02 GIN03 GIN04 GIN05 GIN06 GIN07 GIN08 GIN09 GIN10 GIN11 GIN12 GIN13 GIN14 GIN15 GIN16 GIN18 "
    expected += "GIN19 GIN20 GIN28 GIN29 GIN31 GIN32 INF04 MSH12 CKP01 CKP02"
    assert {rule.code for rule in all_rules()} >= set(expected.split())


def test_a_second_rule_with_the_same_code_is_refused() -> None:
    with pytest.raises(TypeError, match=r"rule .*Copy has code GIN01, and so has .*MisspeltMacro"):

        class Copy(Rule):
            code = "GIN01"
            title = why = "x"
            bad = good = Example("")

            def check(self, context: Context) -> Iterator[Finding]:
                yield from ()


def test_a_rule_without_its_explanation_is_refused() -> None:
    with pytest.raises(TypeError, match=r"\(GIN99\) does not set why, bad, good"):

        class Bare(Rule):
            code = "GIN99"
            title = "x"

            def check(self, context: Context) -> Iterator[Finding]:
                yield from ()
