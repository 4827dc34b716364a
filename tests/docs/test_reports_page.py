"""Every example of docs/reports.md shows what the commands print."""

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from page_blocks import blocks

from t5x_harness.commands.main import main
from t5x_harness.runtime.choice import find_runtime

EMBEDDED = "--t5x-runtime=embedded"
SUBJECT = "finetune.gin"


@pytest.fixture(autouse=True)
def folder(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a repository that contains the page's config."""
    (tmp_path / ".git").mkdir()
    (config,) = blocks(page, "gin")
    (tmp_path / SUBJECT).write_text(config)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def timeless(text: str) -> str:
    return re.sub(r"\d+\.\d s\b", "0.0 s", text)


def document(capsys: pytest.CaptureFixture[str], form: str) -> Any:
    main(["lint", SUBJECT, f"--format={form}", EMBEDDED])
    return json.loads(capsys.readouterr().out)


def test_what_the_console_shows(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [block.removeprefix("$ ").split("\n", 1) for block in blocks(page, "console")]
    printed = [(shlex.split(command), output) for command, output in shown if output]
    assert len(printed) == 2
    for (program, *arguments), output in printed:
        assert program == "t5x-harness"
        assert main([*arguments, EMBEDDED]) == 1
        assert timeless(capsys.readouterr().out) == timeless(output)


def test_the_json_shown_is_part_of_the_document(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    finding, binding, _ = blocks(page, "json")
    report = document(capsys, "json")
    assert json.loads(finding) in report["findings"]
    assert list(json.loads(finding)) == list(report["findings"][0])
    t5x = find_runtime("embedded").location
    assert json.loads(binding.replace("/path/to/t5x", str(t5x))) in report["runs"][0]["bindings"]


def test_the_result_shown_is_part_of_the_sarif_file(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    *_, shown = blocks(page, "json")
    results = document(capsys, "sarif")["runs"][0]["results"]
    # The position of a code in the list of all codes, and the hash, mean nothing to a reader.
    assert json.loads(shown) in [
        {k: v for k, v in r.items() if k not in ("ruleIndex", "partialFingerprints")} for r in results
    ]


def test_the_summary_shown_is_what_is_added(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = blocks(page, "markdown")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    main(["lint", SUBJECT, EMBEDDED])
    assert timeless((folder / "summary.md").read_text()).rstrip() == timeless(shown).rstrip()


def test_the_junit_file_has_what_is_shown(page: str, folder: Path, pytester: pytest.Pytester, imported: None) -> None:
    (pytester.path / SUBJECT).write_text((folder / SUBJECT).read_text())
    (command,) = [block for block in blocks(page, "console") if block.startswith("$ pytest ")]
    pytester.runpytest_subprocess(EMBEDDED, *shlex.split(command)[2:]).assert_outcomes(failed=1)
    (shown,) = blocks(page, "xml")
    suite = ElementTree.parse(pytester.path / "report.xml").getroot().find("testsuite")
    assert suite is not None
    expected = ElementTree.fromstring(shown)
    for path in ("properties/property", "testcase/properties/property"):
        written = [_timeless(property) for property in suite.findall(path)]
        assert [p.attrib for p in expected.findall(path) if _timeless(p) not in written] == []


def _timeless(property: ElementTree.Element) -> tuple[str | None, str | None]:
    """Returns a property's name and value; a duration has its digits replaced."""
    name, value = property.get("name"), property.get("value")
    return name, re.sub(r"\d+", "0", value or "") if name == "t5x.seconds" else value
