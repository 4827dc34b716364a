"""The examples of all pages of rules are copied to files and linted with the command that each page names.

The findings of resolve, plan and aot are tested in ``tests/rules``. Here, their examples must pass lint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.commands.main import main
from t5x_harness.findings.rule import FOLDER, Example, Rule
from t5x_harness.rulebook.pages import pages
from t5x_harness.rulebook.rules import all_rules
from t5x_harness.spec import DEFAULT_SLICE, Stage

_OF_LINT = all_rules(Stage.LINT)
_LATER = tuple(rule for rule in all_rules(Stage.RESOLVE, Stage.PLAN, Stage.AOT) if not rule.bad.golden)
_OPEN = {"GIN03", "GIN27"}
"""The codes of values that a short example leaves open, as its page says."""


def _found(example: Example, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    for name, text in {**example.files, "run.gin": example.gin}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace(FOLDER, str(folder)), encoding="utf-8")
    given = [f"--gin_bindings={binding.replace(FOLDER, str(folder))}" for binding in example.bindings]
    given += [f"--run_mode={example.mode}"] if example.mode is not None else []
    given += [f"--slice={example.slice}"] if example.slice != DEFAULT_SLICE else []
    main(["lint", "run.gin", "--json", "--python-path=.", *given, *more])
    out = capsys.readouterr().out
    found: list[dict[str, Any]] = json.loads(out)["findings"]
    for finding in found:
        lines = example.bindings if finding["file"] == "--gin bindings" else ()
        if not lines and finding["file"] is not None:
            lines = tuple((folder / finding["file"]).read_text(encoding="utf-8").splitlines())
        finding["text"] = lines[finding["line"] - 1] if lines else ""
    return found


@pytest.mark.parametrize("rule", _OF_LINT, ids=lambda rule: rule.code)
def test_the_example_of_a_page_gives_its_code_at_its_line(
    rule: Rule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = pages()[f"{rule.code}.md"]
    more = ("--slice=v3-8",) if "`--slice`" in page else ()
    found = _in(tmp_path / "bad", rule.bad, capsys, *more)
    assert any(f["code"] == rule.code and f["text"].startswith(rule.bad.at) for f in found), found
    fixed = _in(tmp_path / "good", rule.good, capsys, *more)
    assert rule.code not in {f["code"] for f in fixed}
    errors = {f["code"] for f in fixed if f["severity"] == "error"}
    assert errors <= (_OPEN if "The example is short: lint also names" in page else set()), fixed


def _in(folder: Path, example: Example, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return _found(example, folder, capsys, *more)


@pytest.mark.parametrize("rule", _LATER, ids=lambda rule: f"{rule.stage}-{rule.code}")
def test_lint_does_not_stop_before_the_stage_that_a_page_names(
    rule: Rule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = _in(tmp_path / "bad", rule.bad, capsys)
    assert {f["code"] for f in bad if f["severity"] == "error"} <= {rule.code}, bad
    good = _in(tmp_path / "good", rule.good, capsys)
    assert [f for f in good if f["severity"] == "error"] == []
