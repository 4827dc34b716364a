"""Lint names no error in an example of a rule but the one that its page is about, or those that the page mentions.

``tests/lint`` and ``tests/rules`` test that each rule finds its bad example at its line, and nothing in its good one.
"""

import json
from pathlib import Path

import pytest

from t5x_harness.commands.main import main
from t5x_harness.findings.rule import FOLDER, Example, Rule
from t5x_harness.rulebook.pages import pages
from t5x_harness.rulebook.rules import all_rules
from t5x_harness.spec import DEFAULT_SLICE, Stage

_OPEN = {"GIN03", "GIN27"}
"""The codes of values that a short example leaves open, as its page says."""


def _errors(example: Example, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> set[str]:
    """Returns the codes of the errors that lint finds in an example, with the command that the page names."""
    for name, text in {**example.files, "run.gin": example.gin}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace(FOLDER, str(folder)), encoding="utf-8")
    given = [f"--gin_bindings={binding.replace(FOLDER, str(folder))}" for binding in example.bindings]
    given += [f"--run_mode={example.mode}"] if example.mode is not None else []
    given += [f"--slice={example.slice}"] if example.slice != DEFAULT_SLICE else []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["lint", "run.gin", "--json", "--python-path=.", *given, *more])
    return {each["code"] for each in json.loads(capsys.readouterr().out)["findings"] if each["severity"] == "error"}


@pytest.mark.parametrize(
    "rule", [each for each in all_rules() if not each.bad.golden], ids=lambda rule: f"{rule.stage}-{rule.code}"
)
def test_lint_names_no_other_error(rule: Rule, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, of_lint = pages()[f"{rule.code}.md"], rule.stage is Stage.LINT
    more = ("--slice=v3-8",) if of_lint and "`--slice`" in page else ()
    if not of_lint:
        bad = _errors(rule.bad, tmp_path / "bad", capsys)
        assert bad <= {rule.code}, "lint would stop before the stage that the page names"
    is_short = of_lint and "The example is short: lint also names" in page
    assert _errors(rule.good, tmp_path / "good", capsys, *more) <= (_OPEN if is_short else set())
