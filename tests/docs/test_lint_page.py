"""Every example of docs/lint.md shows what the command prints."""

import re
import shlex
from pathlib import Path

import pytest
from page_blocks import blocks

from t5x_harness.commands.main import main


def _lasting(text: str) -> str:
    """Returns output without times, the list of existing rules and line breaks inside paragraphs."""
    text = re.sub(r"not checked: [^:]*: these", "not checked: [...]: these", re.sub(r"\d+\.\d s\b", "0.0 s", text))
    return re.sub(r"\n    (?=\w)", " ", text)


def test_what_the_page_shows_is_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name, text in zip(("finetune.gin", "data.gin"), blocks(page, "gin"), strict=True):
        (tmp_path / name).write_text(text)
    shown = [block.removeprefix("$ ").split("\n", 1) for block in blocks(page, "console")]
    assert len(shown) == 2
    for command, output in shown:
        program, *arguments = shlex.split(command)
        assert program == "t5x-harness"
        assert main([*arguments, "--t5x-runtime=embedded"]) == 1
        assert _lasting(capsys.readouterr().out) == _lasting(output)


def test_the_hooks_that_the_page_names_are_there(page: str, repository: Path) -> None:
    named = re.findall(r"`(t5x-gin-\w+)`", page)
    assert named == re.findall(r"- id: (\S+)", (repository / ".pre-commit-hooks.yaml").read_text())
