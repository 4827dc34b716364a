"""The examples of docs/tpu-numerics.md show what happens."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import blocks

from t5x_harness.commands.main import main


def test_commands_print_what_is_shown(page: str) -> None:
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    for example in blocks(page, "console")[0].removeprefix("$ ").split("\n$ "):
        command, _, shown = example.strip().partition("\n")
        words = shlex.split(command)
        done = subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == shown


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_the_model_fails_with_the_message_that_is_shown(
    page: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample_tasks").symlink_to(repository / "sample_tasks")
    for text in (*blocks(page, "python"), *blocks(page, "gin")):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    (passing,) = re.findall(r"^`t5x-harness (run [^`]+)` passes", page, re.MULTILINE)
    assert main([*shlex.split(passing), "--t5x-runtime=embedded", "--until=train"]) == 0
    capsys.readouterr()
    command, _, output = blocks(page, "console")[1].partition("\n")
    assert main([*shlex.split(command)[2:], "--t5x-runtime=embedded"]) == 1
    printed = capsys.readouterr().out

    def lasting(text: str) -> str:
        text = re.sub(r"\btime +findings\b", "time findings", text)  # the column is as wide as the time
        return re.sub(r"\s+\d+(\.\d)? s\b", " 0 s", text)

    assert lasting(printed).startswith(lasting(output))
