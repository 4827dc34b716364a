"""docs/aot.md lists exactly the existing modes and codes, and its test passes if libtpu is installed."""

import importlib.util
import re

import pytest
from page_blocks import blocks, parsed

from t5x_harness.findings.rule import FILES, trained
from t5x_harness.rulebook.codes import every_code
from t5x_harness.spec import AotMode


def test_its_modes_are_those_that_there_are(page: str) -> None:
    rows = re.findall(r"^\| (`--aot.*?`) \|", page, re.MULTILINE)
    assert {mode for row in rows for mode in re.findall(r"--aot=(\w+)", row)} == set(AotMode)


def test_its_codes_are_those_that_there_are(page: str) -> None:
    listed = re.findall(r"^\| (AOT\d\d) \|", page, re.MULTILINE)
    assert listed == sorted(code for code in every_code() if code.startswith("AOT"))


def test_the_options_of_fit_are_those_that_there_are(page: str) -> None:
    section = page.partition("## Which slice")[2].partition("\n## ")[0]
    words = [
        words for options in re.findall(r"^\| (`--.*?) \|", section, re.MULTILINE) for words in options.split(", ")
    ]
    assert len(words) == 7
    for option in words:
        assert parsed(f"t5x-harness fit run.gin {option.strip('`')}")
    assert {"--every", "--hours"} <= set(re.findall(r"`(--\w+)`", section))


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_its_test_passes(page: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(blocks(page, "python")[0])
    (pytester.path / "counting.py").write_text(FILES["counting.py"], encoding="utf-8")
    (pytester.path / "finetune.gin").write_text(trained(), encoding="utf-8")
    pytester.makeini("[pytest]\npythonpath = .\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
