"""Every rule is collected, explains itself, finds its bad example's mistake and nothing in its good example."""

import contextlib
from pathlib import Path

import pytest
from linting import Folder

from t5x_harness.findings.rule import FOLDER, Example, Rule, rules_in
from t5x_harness.gin.program import BINDINGS
from t5x_harness.lint.rules import RULES
from t5x_harness.spec import Finding, Location, Severity, Stage

STATIC_ROWS = """
GIN01 GIN02 GIN03 GIN04 GIN05 GIN06 GIN07 GIN08 GIN09 GIN10 GIN11 GIN12 GIN13 GIN14 GIN15 GIN16 GIN17 GIN18 GIN19 GIN20
GIN21 GIN23 GIN24 GIN25 GIN26 GIN27 GIN28 GIN29 GIN30 GIN31 GIN32 GIN33 GIN34 GIN35 MSH02 MSH03 CKP23 MSH12 MSH14 CKP01
CKP02 CKP04 CKP05 CKP11 CKP12 CKP14 CKP15 CKP17 CKP18 CKP19 CKP20 CKP25 INF04 INF09 GCS03 GCS08 GCS11 VTX07 AUX02 AUX03
AUX04 AUX05 POD07
"""
"""The rows of the failure catalog that can be found from text alone."""


def _findings(folder: Folder, example: Example) -> list[Finding]:
    folder.write(example.files)
    gin = example.gin.replace(FOLDER, str(folder.path))
    return folder.findings(gin, bindings=example.bindings, mode=example.mode, ignore=(), on_slice=True)


def _line(folder: Folder, example: Example, location: Location) -> str:
    """Returns the line at a place."""
    if location.file == BINDINGS:
        return example.bindings[location.line - 1]
    return (folder.path / location.file).read_text(encoding="utf-8").splitlines()[location.line - 1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_points_to_the_line_at_fault_in_its_bad_example(folder: Folder, rule: Rule) -> None:
    assert rule.bad.at
    found = [f for f in _findings(folder, rule.bad) if f.code == rule.code]
    lines = [_line(folder, rule.bad, f.location) for f in found if f.location is not None]
    assert any(line.startswith(rule.bad.at) for line in lines), found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_leaves_its_good_example_alone(folder: Folder, rule: Rule) -> None:
    assert rule.code not in {f.code for f in _findings(folder, rule.good)}


def test_the_rules_of_this_stage_are_there() -> None:
    assert {rule.code for rule in RULES} >= set(STATIC_ROWS.split())


def _package(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> str:
    """Writes a package of rules; each module's text begins with a mistake whose code is GIN99."""
    package = f"rules_in_{folder.name}"
    (folder / package).mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (folder / package / f"{name}.py").write_text(text and f"{_MISTAKE}{text}")
    monkeypatch.syspath_prepend(folder)
    return package


_MISTAKE = """\
from t5x_harness.findings.rule import Example, Found, Rule

GIN99 = Rule("GIN99", "x", why="x", bad=Example(""), good=Example(""))
"""
_FINDER = """
@GIN99
def finder(context):
    yield Found("x", None, "x")
"""


def test_a_module_of_a_package_of_rules_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path, monkeypatch, one=_FINDER, two="NUMBER = 1")
    (rule,) = rules_in(package, Stage.LINT)
    assert (rule.code, rule.stage, rule.name) == ("GIN99", Stage.LINT, "Finder")
    with contextlib.closing(rule.findings(None, lambda _: (None, "name"))) as found:
        assert next(found) == Finding("GIN99", Severity.ERROR, Stage.LINT, "x", None, "x", "name")


def test_a_second_rule_with_the_same_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path, monkeypatch, one=_FINDER, two=_FINDER.replace("finder", "copy"))
    with pytest.raises(TypeError, match="two rules of lint find GIN99: Finder and Copy"):
        rules_in(package, Stage.LINT)
