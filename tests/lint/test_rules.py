"""Every rule registers itself, explains itself, finds its own bad example and leaves its good one alone."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator

import pytest
from linting import T5X, Folder

from t5x_harness.findings.examples import FOLDER
from t5x_harness.findings.rule import Mistake
from t5x_harness.gin.program import BINDINGS
from t5x_harness.lint import Kind, classify, lint
from t5x_harness.lint.rule import Context, Example, Rule, all_rules
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.spec import Finding, Location, RunSpec

SAMPLES = sorted(path.name for path in CONFIGS.glob("*.gin"))
STATIC_ROWS = """
GIN01 GIN02 GIN03 GIN04 GIN05 GIN06 GIN07 GIN08 GIN09 GIN10 GIN11 GIN12 GIN13 GIN14 GIN15 GIN16 GIN17 GIN18 GIN19 GIN20
GIN21 GIN23 GIN24 GIN25 GIN26 GIN27 GIN28 GIN29 GIN30 GIN31 GIN32 GIN33 GIN34 GIN35 MSH02 MSH03 CKP23 MSH12 MSH14 CKP01
CKP02 CKP04 CKP05 CKP11 CKP12 CKP14 CKP15 CKP17 CKP18 CKP19 CKP20 CKP25 INF04 INF09 GCS03 GCS08 GCS11 VTX07 AUX02 AUX03
AUX04 AUX05 POD07
"""
"""The rows of the failure catalogue that text alone can show."""


def _findings(folder: Folder, example: Example) -> list[Finding]:
    folder.write(example.files)
    gin = example.gin.replace(FOLDER, str(folder.path))
    return folder.findings(gin, bindings=example.bindings, mode=example.mode, ignore=(), on_slice=True)


def _line(folder: Folder, example: Example, location: Location) -> str:
    """The text at a place."""
    if location.file == BINDINGS:
        return example.bindings[location.line - 1]
    return (folder.path / location.file).read_text(encoding="utf-8").splitlines()[location.line - 1]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_points_to_the_line_at_fault_in_its_bad_example(folder: Folder, rule: type[Rule]) -> None:
    found = [f for f in _findings(folder, rule.bad) if f.code == rule.code]
    lines = [_line(folder, rule.bad, f.location) for f in found if f.location is not None]
    assert any(line.startswith(rule.bad.at) for line in lines), found


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_leaves_its_good_example_alone(folder: Folder, rule: type[Rule]) -> None:
    assert rule.code not in {f.code for f in _findings(folder, rule.good)}


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_explains_itself(rule: type[Rule]) -> None:
    assert re.fullmatch(r"[A-Z]{3}\d\d", rule.code)
    assert rule.title
    assert not rule.title.endswith(".")
    assert rule.why.endswith((".", "`.", "`"))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_sample_configs_are_not_faulted(name: str) -> None:
    spec = RunSpec((name,), cwd=str(CONFIGS))
    assert classify(spec, t5x_parent=T5X).kind is Kind.RUN_CONFIG
    assert lint(spec, t5x_parent=T5X).findings == ()


def test_the_rules_of_this_stage_are_there() -> None:
    assert {rule.code for rule in all_rules()} >= set(STATIC_ROWS.split())


def test_a_second_rule_with_the_same_code_is_refused() -> None:
    with pytest.raises(TypeError, match=r"rule .*Copy has code GIN01, and so has .*MisspeltMacro"):

        class Copy(Rule):
            code = "GIN01"
            title = why = "x"
            bad = good = Example("", at="x")

            def check(self, context: Context) -> Iterator[Finding]:
                yield from ()


def test_a_rule_whose_module_is_imported_once_more_is_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "t5x_harness.lint.rules.missing_file"
    before = all_rules()
    monkeypatch.setattr(Mistake, "_registered", dict(Mistake._registered))
    monkeypatch.delitem(sys.modules, name)  # as pytester does at the end of a test
    again = importlib.import_module(name)
    assert again.MissingFile in all_rules()
    assert [rule.code for rule in all_rules()] == [rule.code for rule in before]


def test_a_rule_without_its_explanation_is_refused() -> None:
    with pytest.raises(TypeError, match=r"\(GIN99\) does not set why, bad, good"):

        class Bare(Rule):
            code = "GIN99"
            title = "x"

            def check(self, context: Context) -> Iterator[Finding]:
                yield from ()


def test_a_rule_that_does_not_point_to_a_line_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Vague \(GIN98\) does not say which line of its bad example is at fault"):

        class Vague(Rule):
            code = "GIN98"
            title = why = "x"
            bad = good = Example("")

            def check(self, context: Context) -> Iterator[Finding]:
                yield from ()

    assert "GIN98" not in {rule.code for rule in all_rules()}
